// Softmax, or its logarithm, along the middle axis of [outer, n, inner]: bindings x, y. A workgroup has one line.

struct Params { lines: u32, n: u32, inner: u32, logarithm: u32 }

var<workgroup> shared_value: array<f32, 64>;

fn reduced(thread: u32, value: f32, sums: bool) -> f32 {
    shared_value[thread] = value;
    workgroupBarrier();
    for (var half = 32u; half > 0u; half /= 2u) {
        if (thread < half) {
            let other = shared_value[thread + half];
            shared_value[thread] = select(max(shared_value[thread], other), shared_value[thread] + other, sums);
        }
        workgroupBarrier();
    }
    let all = shared_value[0];
    workgroupBarrier();
    return all;
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) n: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let line = group.x + group.y * n.x;
    let real = line < p.lines;
    let start = select(0u, line / p.inner * p.n * p.inner + line % p.inner, real);
    var largest = -3.4028234e38;
    for (var i = thread; i < p.n; i += 64u) { largest = max(largest, f32(x[start + i * p.inner])); }
    largest = reduced(thread, largest, false);
    var sum = 0.0;
    for (var i = thread; i < p.n; i += 64u) { sum += exp(f32(x[start + i * p.inner]) - largest); }
    sum = reduced(thread, sum, true);
    if (!real) { return; }
    for (var i = thread; i < p.n; i += 64u) {
        let from_largest = f32(x[start + i * p.inner]) - largest;
        y[start + i * p.inner] = Y(select(exp(from_largest) / sum, from_largest - log(sum), p.logarithm == 1u));
    }
}
