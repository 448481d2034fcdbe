// Convolution of one input channel a group: bindings x, w, bias, y. An invocation computes 4 neighbouring pixels of an output channel.
// w: [channel out][ky][kx].

struct Params {
    items: u32, pixels: u32, outs: u32, multiplier: u32, h: u32, wide: u32, ow: u32, kh: u32, kw: u32,
    sy: u32, sx: u32, py: i32, px: i32, dy: u32, dx: u32, alpha: f32, beta: f32,
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) g: vec3<u32>, @builtin(num_workgroups) n: vec3<u32>) {
    let item = g.x + g.y * n.x * 64u;
    if (item >= p.items) { return; }
    let quads = (p.pixels + 3u) / 4u;
    let first = (item % quads) * 4u;
    let plane = item / quads;
    let channel = plane % p.outs;
    let base = (plane / p.outs * (p.outs / p.multiplier) + channel / p.multiplier) * p.h * p.wide;
    var sum = vec4<f32>();
    for (var ky = 0u; ky < p.kh; ky++) {
        for (var kx = 0u; kx < p.kw; kx++) {
            let weight = w[(channel * p.kh + ky) * p.kw + kx];
            for (var i = 0u; i < 4u; i++) {
                let pixel = min(first + i, p.pixels - 1u);
                let iy = i32((pixel / p.ow) * p.sy + ky * p.dy) - p.py;
                let ix = i32((pixel % p.ow) * p.sx + kx * p.dx) - p.px;
                if (iy >= 0 && iy < i32(p.h) && ix >= 0 && ix < i32(p.wide)) {
                    sum[i] += f32(weight * C(x[base + u32(iy) * p.wide + u32(ix)]));
                }
            }
        }
    }
    for (var i = 0u; i < 4u && first + i < p.pixels; i++) {
        y[plane * p.pixels + first + i] = Y(activate(sum[i] + f32(bias[channel]), p.alpha, p.beta));
    }
}
