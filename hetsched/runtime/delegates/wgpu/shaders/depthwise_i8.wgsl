// Convolution of bytes, one input channel a group, exact int32 sums: bindings x, w, factor, bias, y. An invocation computes 4
// neighbouring elements. x: [n][channel][plane] as bytes; w: [channel out][ky][kx], the weights as int32.

struct Params {
    items: u32, pixels: u32, outs: u32, multiplier: u32, h: u32, wide: u32, ow: u32, kh: u32, kw: u32,
    sy: u32, sx: u32, py: i32, px: i32, dy: u32, dx: u32, flip: u32, zero: i32,
    alpha: f32, beta: f32, y_scale: f32, y_zero: f32, total: u32,
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) g: vec3<u32>, @builtin(num_workgroups) n: vec3<u32>) {
    let item = g.x + g.y * n.x * 64u;
    if (item >= p.items) { return; }
    var values = vec4<f32>();
    for (var i = 0u; i < 4u; i++) {
        let element = min(item * 4u + i, p.total - 1u);
        let pixel = element % p.pixels;
        let plane = element / p.pixels;
        let channel = plane % p.outs;
        let base = (plane / p.outs * (p.outs / p.multiplier) + channel / p.multiplier) * p.h * p.wide;
        var sum = 0;
        for (var ky = 0u; ky < p.kh; ky++) {
            let iy = i32((pixel / p.ow) * p.sy + ky * p.dy) - p.py;
            for (var kx = 0u; kx < p.kw; kx++) {
                let ix = i32((pixel % p.ow) * p.sx + kx * p.dx) - p.px;
                if (iy >= 0 && iy < i32(p.h) && ix >= 0 && ix < i32(p.wide)) {
                    let at = base + u32(iy) * p.wide + u32(ix);
                    let byte = extractBits(i32(x[at / 4u] ^ p.flip), at % 4u * 8u, 8u);
                    sum += (byte - p.zero) * w[(channel * p.kh + ky) * p.kw + kx];
                }
            }
        }
        values[i] = activate(f32(sum) * factor[channel] + f32(bias[channel]), p.alpha, p.beta);
    }
    store_four(item * 4u, values);
}
