// Where the largest or smallest element of the middle axis of [outer, n, inner] is: bindings x, y (int64). An invocation has one line.

struct Params { items: u32, n: u32, inner: u32, largest: u32, last: u32 }

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) g: vec3<u32>, @builtin(num_workgroups) n: vec3<u32>) {
    let line = g.x + g.y * n.x * 64u;
    if (line >= p.items) { return; }
    let start = line / p.inner * p.n * p.inner + line % p.inner;
    var best = 0u;
    var value = f32(x[start]);
    for (var i = 1u; i < p.n; i++) {
        let other = f32(x[start + i * p.inner]);
        let beats = select((other < value), (other > value), p.largest == 1u);
        if (beats || (p.last == 1u && other == value)) { best = i; value = other; }
    }
    y[line] = vec2<i32>(i32(best), 0);
}
