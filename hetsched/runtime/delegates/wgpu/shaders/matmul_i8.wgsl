// Rows of bytes times an int8 matrix, exact int32 sums: bindings x, w, factor, bias, zero, correction, y. An invocation computes 4
// neighbouring elements. x: [row][words], filled up so that flip makes zeros; w: [column][words]; zero: a column's zero point;
// correction: what its products with the rows' zero point come to.

struct Params {
    items: u32, columns: u32, words: u32, flip: u32, alpha: f32, beta: f32, y_scale: f32, y_zero: f32, total: u32,
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) g: vec3<u32>, @builtin(num_workgroups) n: vec3<u32>) {
    let item = g.x + g.y * n.x * 64u;
    if (item >= p.items) { return; }
    var values = vec4<f32>();
    for (var i = 0u; i < 4u; i++) {
        let element = min(item * 4u + i, p.total - 1u);
        let column = element % p.columns;
        let at = element / p.columns * p.words;
        var sum = 0;
        var rows = 0;
        for (var word = 0u; word < p.words; word++) {
            let bytes = x[at + word] ^ p.flip;
            sum += dot4I8Packed(bytes, w[column * p.words + word]);
            rows += dot4I8Packed(bytes, 0x01010101u);
        }
        let exact = sum - zero[column] * rows - correction[column];
        values[i] = activate(f32(exact) * factor[column] + f32(bias[column]), p.alpha, p.beta);
    }
    store_four(item * 4u, values);
}
