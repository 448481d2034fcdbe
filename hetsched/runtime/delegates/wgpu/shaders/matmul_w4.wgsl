// Rows times a matrix of 4-bit weights in groups along k, dequantized here: bindings a, w, scale, zero, bias, y. An invocation computes
// 4 rows of a column. w: [word of 8 weights][column], the lowest bits first; scale and zero: [group][column].

struct Params { items: u32, rows: u32, columns: u32, k: u32, words: u32, group_words: u32, alpha: f32, beta: f32 }

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) g: vec3<u32>, @builtin(num_workgroups) n: vec3<u32>) {
    let item = g.x + g.y * n.x * 64u;
    if (item >= p.items) { return; }
    let column = item % p.columns;
    let row = item / p.columns * 4u;
    var at: array<u32, 4>;
    for (var i = 0u; i < 4u; i++) { at[i] = min(row + i, p.rows - 1u) * p.k; }
    var sum = vec4<f32>();
    for (var first = 0u; first < p.words; first += p.group_words) {
        let of_group = first / p.group_words * p.columns + column;
        let middle = C(zero[of_group]);
        var part = vec4<f32>();
        for (var word = first; word < min(first + p.group_words, p.words); word++) {
            let nibbles = w[word * p.columns + column];
            for (var j = 0u; j < 8u && word * 8u + j < p.k; j++) {
                let weight = C((nibbles >> (j * 4u)) & 15u) - middle;
                let k = word * 8u + j;
                part += vec4<f32>(vec4<C>(C(a[at[0] + k]), C(a[at[1] + k]), C(a[at[2] + k]), C(a[at[3] + k])) * weight);
            }
        }
        sum += part * f32(scale[of_group]);
    }
    for (var i = 0u; i < 4u && row + i < p.rows; i++) {
        y[(row + i) * p.columns + column] = Y(activate(sum[i] + f32(bias[column]), p.alpha, p.beta));
    }
}
