// 2-D transposed convolution in groups: bindings x, w, bias, y. An invocation computes one element.
// w: [channel in][channel out of the group][ky][kx].

struct Params {
    items: u32, ins: u32, outs: u32, groups: u32, h: u32, wide: u32, oh: u32, ow: u32, kh: u32, kw: u32,
    sy: u32, sx: u32, py: i32, px: i32, dy: u32, dx: u32, alpha: f32, beta: f32,
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) g: vec3<u32>, @builtin(num_workgroups) n: vec3<u32>) {
    let item = g.x + g.y * n.x * 64u;
    if (item >= p.items) { return; }
    let ox = i32(item % p.ow);
    let oy = i32(item / p.ow % p.oh);
    let channel = item / (p.ow * p.oh) % (p.outs * p.groups);
    let image = item / (p.ow * p.oh * p.outs * p.groups);
    let group = channel / p.outs;
    var sum = 0.0;
    for (var ky = 0u; ky < p.kh; ky++) {
        let ty = oy + p.py - i32(ky * p.dy);
        if (ty < 0 || ty % i32(p.sy) != 0 || ty / i32(p.sy) >= i32(p.h)) { continue; }
        for (var kx = 0u; kx < p.kw; kx++) {
            let tx = ox + p.px - i32(kx * p.dx);
            if (tx < 0 || tx % i32(p.sx) != 0 || tx / i32(p.sx) >= i32(p.wide)) { continue; }
            let pixel = u32(ty) / p.sy * p.wide + u32(tx) / p.sx;
            for (var c = 0u; c < p.ins; c++) {
                let from_channel = group * p.ins + c;
                let weight = w[((from_channel * p.outs + channel % p.outs) * p.kh + ky) * p.kw + kx];
                sum += f32(weight * C(x[(image * p.ins * p.groups + from_channel) * p.h * p.wide + pixel]));
            }
        }
    }
    y[item] = Y(activate(sum + f32(bias[channel]), p.alpha, p.beta));
}
