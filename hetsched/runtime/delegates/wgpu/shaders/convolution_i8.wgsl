// 2-D convolution of bytes with int8 weights, exact int32 sums: bindings x, w, factor, bias, correction, y. An invocation computes 4
// neighbouring pixels of an output channel. x: words as pack_channels makes them; flip turns unsigned bytes into signed ones.
// w: [channel out][ky][kx][words]; correction: the input's zero point times the sum of a channel's weights.

struct Params {
    items: u32, pixels: u32, outs: u32, groups: u32, words: u32, h: u32, wide: u32, ow: u32, kh: u32, kw: u32,
    sy: u32, sx: u32, py: i32, px: i32, dy: u32, dx: u32, flip: u32, zero_word: u32,
    alpha: f32, beta: f32, y_scale: f32, y_zero: f32, total: u32,
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) g: vec3<u32>, @builtin(num_workgroups) n: vec3<u32>) {
    let item = g.x + g.y * n.x * 64u;
    if (item >= p.items) { return; }
    var values = vec4<f32>();
    var channels: vec4<u32>;
    var pixels: vec4<u32>;
    var images: vec4<u32>;
    for (var i = 0u; i < 4u; i++) {
        let element = min(item * 4u + i, p.total - 1u);
        pixels[i] = element % p.pixels;
        channels[i] = element / p.pixels % (p.outs * p.groups);
        images[i] = element / (p.pixels * p.outs * p.groups);
    }
    var sum = vec4<i32>();
    for (var ky = 0u; ky < p.kh; ky++) {
        for (var kx = 0u; kx < p.kw; kx++) {
            var at: vec4<u32>;
            var row: vec4<u32>;
            var inside: vec4<bool>;
            for (var i = 0u; i < 4u; i++) {
                let iy = i32((pixels[i] / p.ow) * p.sy + ky * p.dy) - p.py;
                let ix = i32((pixels[i] % p.ow) * p.sx + kx * p.dx) - p.px;
                inside[i] = iy >= 0 && iy < i32(p.h) && ix >= 0 && ix < i32(p.wide);
                let pixel = select(0u, u32(iy) * p.wide + u32(ix), inside[i]);
                at[i] = ((images[i] * p.h * p.wide + pixel) * p.groups + channels[i] / p.outs) * p.words;
                row[i] = ((channels[i] * p.kh + ky) * p.kw + kx) * p.words;
            }
            for (var word = 0u; word < p.words; word++) {
                for (var i = 0u; i < 4u; i++) {
                    let bytes = select(p.zero_word, x[at[i] + word] ^ p.flip, inside[i]);
                    sum[i] += dot4I8Packed(bytes, w[row[i] + word]);
                }
            }
        }
    }
    for (var i = 0u; i < 4u; i++) {
        let channel = channels[i];
        values[i] = activate(f32(sum[i] - correction[channel]) * factor[channel] + f32(bias[channel]), p.alpha, p.beta);
    }
    store_four(item * 4u, values);
}
