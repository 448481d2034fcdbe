// Products of two tensors that are both computed while running: bindings a, b, bias, offsets, y. An invocation computes 4 columns of a row.
// offsets: for each product, where its a and its b begin.

struct Params {
    items: u32, rows: u32, columns: u32, k: u32, a_row: u32, a_k: u32, b_k: u32, b_column: u32, scale: f32, alpha: f32, beta: f32,
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) g: vec3<u32>, @builtin(num_workgroups) n: vec3<u32>) {
    let item = g.x + g.y * n.x * 64u;
    if (item >= p.items) { return; }
    let quads = (p.columns + 3u) / 4u;
    let column = (item % quads) * 4u;
    let row = item / quads % p.rows;
    let batch = item / (quads * p.rows);
    let from_a = u32(offsets[batch * 2u]) + row * p.a_row;
    var from_b: array<u32, 4>;
    for (var i = 0u; i < 4u; i++) { from_b[i] = u32(offsets[batch * 2u + 1u]) + min(column + i, p.columns - 1u) * p.b_column; }
    var sum = vec4<f32>();
    for (var k = 0u; k < p.k; k++) {
        let step = k * p.b_k;
        let right = vec4<C>(C(b[from_b[0] + step]), C(b[from_b[1] + step]), C(b[from_b[2] + step]), C(b[from_b[3] + step]));
        sum += vec4<f32>(right * C(a[from_a + k * p.a_k]));
    }
    for (var i = 0u; i < 4u && column + i < p.columns; i++) {
        let value = activate(sum[i] * p.scale + f32(bias[column + i]), p.alpha, p.beta);
        y[(batch * p.rows + row) * p.columns + column + i] = Y(value);
    }
}
