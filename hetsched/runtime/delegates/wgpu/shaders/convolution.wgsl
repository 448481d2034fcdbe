// 2-D convolution in groups: bindings x, w, bias, y. An invocation computes 4 output channels of 4 neighbouring pixels;
// a workgroup has the same channels, so its weights are read once for all.
// w: [group][block of 4 channels][ky][kx][channel in] of vec4 (one lane per output channel); bias: one value a channel, in the same order.

struct Params {
    items: u32, pixels: u32, blocks: u32, ins: u32, outs: u32, groups: u32, h: u32, wide: u32, ow: u32, kh: u32, kw: u32,
    sy: u32, sx: u32, py: i32, px: i32, dy: u32, dx: u32, alpha: f32, beta: f32,
}

@compute @workgroup_size(16)
fn main(@builtin(global_invocation_id) g: vec3<u32>, @builtin(workgroup_id) workgroup: vec3<u32>) {
    if (g.x >= p.items) { return; }
    let first = g.x * 4u;
    let block = workgroup.y;
    let image = workgroup.z;
    let group = block / p.blocks;
    let plane = p.h * p.wide;
    let base = (image * p.groups + group) * p.ins * plane;
    var sum = array<vec4<f32>, 4>();
    for (var ky = 0u; ky < p.kh; ky++) {
        for (var kx = 0u; kx < p.kw; kx++) {
            var at: array<u32, 4>;
            var inside: array<bool, 4>;
            for (var i = 0u; i < 4u; i++) {
                let pixel = min(first + i, p.pixels - 1u);
                let iy = i32((pixel / p.ow) * p.sy + ky * p.dy) - p.py;
                let ix = i32((pixel % p.ow) * p.sx + kx * p.dx) - p.px;
                inside[i] = iy >= 0 && iy < i32(p.h) && ix >= 0 && ix < i32(p.wide);
                at[i] = base + select(0u, u32(iy) * p.wide + u32(ix), inside[i]);
            }
            var row = ((block * p.kh + ky) * p.kw + kx) * p.ins;
            for (var c = 0u; c < p.ins; c++) {
                let weight = w[row];
                sum[0] += vec4<f32>(weight * select(C(0.0), C(x[at[0]]), inside[0]));
                sum[1] += vec4<f32>(weight * select(C(0.0), C(x[at[1]]), inside[1]));
                sum[2] += vec4<f32>(weight * select(C(0.0), C(x[at[2]]), inside[2]));
                sum[3] += vec4<f32>(weight * select(C(0.0), C(x[at[3]]), inside[3]));
                at[0] += plane; at[1] += plane; at[2] += plane; at[3] += plane;
                row += 1u;
            }
        }
    }
    let channel = (block % p.blocks) * 4u;
    for (var lane = 0u; lane < 4u; lane++) {
        if (channel + lane >= p.outs) { break; }
        let out = ((image * p.groups + group) * p.outs + channel + lane) * p.pixels;
        for (var i = 0u; i < 4u && first + i < p.pixels; i++) {
            y[out + first + i] = Y(activate(sum[i][lane] + f32(bias[block * 4u + lane]), p.alpha, p.beta));
        }
    }
}
