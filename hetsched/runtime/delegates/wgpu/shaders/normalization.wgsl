// Normalisation of rows of n: bindings x, scale, bias, y. A workgroup has one row. centred: subtract the mean (LayerNormalization,
// InstanceNormalization), else RMSNorm. Element i of row r is scaled by scale[r % channels] where channels is not 0, else by scale[i].

struct Params { rows: u32, n: u32, channels: u32, centred: u32, epsilon: f32 }

var<workgroup> shared_value: array<f32, 64>;

fn summed(thread: u32, value: f32) -> f32 {
    shared_value[thread] = value;
    workgroupBarrier();
    for (var half = 32u; half > 0u; half /= 2u) {
        if (thread < half) { shared_value[thread] += shared_value[thread + half]; }
        workgroupBarrier();
    }
    let all = shared_value[0];
    workgroupBarrier();
    return all;
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) n: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let row = group.x + group.y * n.x;
    let real = row < p.rows;
    let start = select(0u, row * p.n, real);
    var total = 0.0;
    for (var i = thread; i < p.n; i += 64u) { total += f32(x[start + i]); }
    let mean = select(0.0, summed(thread, total) / f32(p.n), p.centred == 1u);
    var squares = 0.0;
    for (var i = thread; i < p.n; i += 64u) { let d = f32(x[start + i]) - mean; squares += d * d; }
    let factor = 1.0 / sqrt(summed(thread, squares) / f32(p.n) + p.epsilon);
    if (!real) { return; }
    for (var i = thread; i < p.n; i += 64u) {
        let which = select(i, row % max(p.channels, 1u), p.channels > 0u);
        y[start + i] = Y((f32(x[start + i]) - mean) * factor * f32(scale[which]) + f32(bias[which]));
    }
}
