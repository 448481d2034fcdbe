// As convolution_i8, where a plane of the result has whole words: an invocation computes 4 neighbouring pixels of 4 output channels; a
// workgroup has the same channels, so its weights are read once for all.

struct Params {
    items: u32, pixels: u32, outs: u32, groups: u32, words: u32, h: u32, wide: u32, ow: u32, kh: u32, kw: u32,
    sy: u32, sx: u32, py: i32, px: i32, dy: u32, dx: u32, flip: u32, zero_word: u32,
    alpha: f32, beta: f32, y_scale: f32, y_zero: f32, total: u32,
}

@compute @workgroup_size(16)
fn main(@builtin(global_invocation_id) g: vec3<u32>, @builtin(workgroup_id) workgroup: vec3<u32>) {
    if (g.x >= p.items) { return; }
    let blocks = (p.outs + 3u) / 4u;
    let group = workgroup.y / blocks;
    let first = workgroup.y % blocks * 4u;
    let base = group * p.outs;
    var sum = array<vec4<i32>, 4>();
    for (var ky = 0u; ky < p.kh; ky++) {
        for (var kx = 0u; kx < p.kw; kx++) {
            var at: vec4<u32>;
            var inside: vec4<bool>;
            for (var i = 0u; i < 4u; i++) {
                let pixel = g.x * 4u + i;
                let iy = i32((pixel / p.ow) * p.sy + ky * p.dy) - p.py;
                let ix = i32((pixel % p.ow) * p.sx + kx * p.dx) - p.px;
                inside[i] = iy >= 0 && iy < i32(p.h) && ix >= 0 && ix < i32(p.wide);
                let from_pixel = select(0u, u32(iy) * p.wide + u32(ix), inside[i]);
                at[i] = ((workgroup.z * p.h * p.wide + from_pixel) * p.groups + group) * p.words;
            }
            var row: array<u32, 4>;
            for (var lane = 0u; lane < 4u; lane++) {
                row[lane] = (((base + min(first + lane, p.outs - 1u)) * p.kh + ky) * p.kw + kx) * p.words;
            }
            for (var word = 0u; word < p.words; word++) {
                let a = select(p.zero_word, x[at.x + word] ^ p.flip, inside.x);
                let b = select(p.zero_word, x[at.y + word] ^ p.flip, inside.y);
                let c = select(p.zero_word, x[at.z + word] ^ p.flip, inside.z);
                let d = select(p.zero_word, x[at.w + word] ^ p.flip, inside.w);
                for (var lane = 0u; lane < 4u; lane++) {
                    let weight = w[row[lane] + word];
                    sum[lane] += vec4<i32>(
                        dot4I8Packed(a, weight), dot4I8Packed(b, weight), dot4I8Packed(c, weight), dot4I8Packed(d, weight)
                    );
                }
            }
        }
    }
    for (var lane = 0u; lane < 4u && first + lane < p.outs; lane++) {
        let channel = base + first + lane;
        var values = vec4<f32>(sum[lane] - vec4<i32>(correction[channel])) * factor[channel] + f32(bias[channel]);
        for (var i = 0u; i < 4u; i++) { values[i] = activate(values[i], p.alpha, p.beta); }
        store_four((workgroup.z * p.groups * p.outs + channel) * p.pixels + g.x * 4u, values);
    }
}
