// Bytes [n][channels][plane] as words of 4 channels [n][plane][group][words]: bindings x, y. A group that does not fill its last word
// is filled up with tail.

struct Params { items: u32, plane: u32, ins: u32, groups: u32, words: u32, tail: u32 }

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) g: vec3<u32>, @builtin(num_workgroups) n: vec3<u32>) {
    let item = g.x + g.y * n.x * 64u;
    if (item >= p.items) { return; }
    // Neighbouring invocations read neighbouring pixels.
    let pixel = item % p.plane;
    let word = item / p.plane % (p.words * p.groups);
    let image = item / (p.plane * p.words * p.groups);
    var packed = 0u;
    for (var lane = 0u; lane < 4u; lane++) {
        let channel = word % p.words * 4u + lane;
        var value = p.tail;
        if (channel < p.ins) {
            let at = ((image * p.groups + word / p.words) * p.ins + channel) * p.plane + pixel;
            value = (x[at / 4u] >> (at % 4u * 8u)) & 255u;
        }
        packed |= value << (lane * 8u);
    }
    y[(image * p.plane + pixel) * p.words * p.groups + word] = packed;
}
