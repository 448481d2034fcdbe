// A reduction along the middle axis of [outer, n, inner]: bindings x, y; the functions first(), joined() and last() come with it.
// A workgroup has one line.

struct Params { lines: u32, n: u32, inner: u32 }

var<workgroup> shared_value: array<f32, 64>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) n: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let line = group.x + group.y * n.x;
    let start = select(0u, line / p.inner * p.n * p.inner + line % p.inner, line < p.lines);
    var value = NEUTRAL;
    for (var i = thread; i < p.n; i += 64u) { value = joined(value, first(f32(x[start + i * p.inner]))); }
    shared_value[thread] = value;
    workgroupBarrier();
    for (var half = 32u; half > 0u; half /= 2u) {
        if (thread < half) { shared_value[thread] = joined(shared_value[thread], shared_value[thread + half]); }
        workgroupBarrier();
    }
    if (thread == 0u && line < p.lines) { y[line] = Y(last(shared_value[0], f32(p.n))); }
}
