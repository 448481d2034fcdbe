"""The wgpu delegate: WGSL compute kernels on any GPU that WebGPU reaches."""
