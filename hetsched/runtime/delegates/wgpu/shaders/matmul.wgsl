// a @ w with a constant matrix: bindings a, w, bias, y. An invocation computes 4 rows of 4 columns;
// a workgroup has the same columns, so its weights are read once for all.
// a: [rows][k], or [k][rows] where a_row is 1; w: [block of 4 columns][k] of vec4 (one lane a column), filled up with zeros.

struct Params { items: u32, rows: u32, columns: u32, k: u32, a_row: u32, a_k: u32, alpha: f32, beta: f32 }

@compute @workgroup_size(16)
fn main(@builtin(global_invocation_id) g: vec3<u32>, @builtin(workgroup_id) workgroup: vec3<u32>) {
    if (g.x >= p.items) { return; }
    let row = g.x * 4u;
    let block = workgroup.y;
    var at: array<u32, 4>;
    for (var i = 0u; i < 4u; i++) { at[i] = min(row + i, p.rows - 1u) * p.a_row; }
    var sum = array<vec4<f32>, 4>();
    for (var k = 0u; k < p.k; k++) {
        let weight = w[block * p.k + k];
        let step = k * p.a_k;
        sum[0] += vec4<f32>(weight * C(a[at[0] + step]));
        sum[1] += vec4<f32>(weight * C(a[at[1] + step]));
        sum[2] += vec4<f32>(weight * C(a[at[2] + step]));
        sum[3] += vec4<f32>(weight * C(a[at[3] + step]));
    }
    for (var i = 0u; i < 4u && row + i < p.rows; i++) {
        for (var lane = 0u; lane < 4u && block * 4u + lane < p.columns; lane++) {
            let column = block * 4u + lane;
            y[(row + i) * p.columns + column] = Y(activate(sum[i][lane] + f32(bias[column]), p.alpha, p.beta));
        }
    }
}
