// Maximum or average of a window: bindings x, y. An invocation computes one element. padded: elements outside count, up to the ends of
// the padding (count_include_pad).

struct Params {
    items: u32, h: u32, wide: u32, oh: u32, ow: u32, kh: u32, kw: u32, sy: u32, sx: u32, py: i32, px: i32, ey: i32, ex: i32,
    dy: u32, dx: u32, largest: u32, padded: u32,
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) g: vec3<u32>, @builtin(num_workgroups) n: vec3<u32>) {
    let item = g.x + g.y * n.x * 64u;
    if (item >= p.items) { return; }
    let ox = item % p.ow;
    let oy = item / p.ow % p.oh;
    let base = item / (p.ow * p.oh) * p.h * p.wide;
    var best = -3.4028234e38;
    var sum = 0.0;
    var count = 0.0;
    for (var ky = 0u; ky < p.kh; ky++) {
        let iy = i32(oy * p.sy + ky * p.dy) - p.py;
        for (var kx = 0u; kx < p.kw; kx++) {
            let ix = i32(ox * p.sx + kx * p.dx) - p.px;
            if (iy >= 0 && iy < i32(p.h) && ix >= 0 && ix < i32(p.wide)) {
                let value = f32(x[base + u32(iy) * p.wide + u32(ix)]);
                best = max(best, value);
                sum += value;
                count += 1.0;
            } else if (p.padded == 1u && iy < i32(p.h) + p.ey && ix < i32(p.wide) + p.ex) {
                count += 1.0;
            }
        }
    }
    y[item] = Y(select(sum / count, best, p.largest == 1u));
}
