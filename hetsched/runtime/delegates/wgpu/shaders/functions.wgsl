// Functions of ONNX operators on float32. A function of one value is called as fn_Name(x, alpha, beta), one of two as op_Name(a, b).

fn erf(x: f32) -> f32 {
    // Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26: at most 1.5e-7 off.
    let a = abs(x);
    let t = 1.0 / (1.0 + 0.3275911 * a);
    let poly = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t;
    let y = 1.0 - poly * exp(-min(a * a, 80.0));
    return select(y, -y, x < 0.0);
}
fn tanh_bounded(x: f32) -> f32 { return tanh(clamp(x, -15.0, 15.0)); }
fn softplus(x: f32) -> f32 { return max(x, 0.0) + log(1.0 + exp(-abs(x))); }
fn mod_floor(a: i32, b: i32) -> i32 { return (a % b + b) % b; }

fn fn_Identity(x: f32, a: f32, b: f32) -> f32 { return x; }
fn fn_Relu(x: f32, a: f32, b: f32) -> f32 { return max(x, 0.0); }
fn fn_Clip(x: f32, a: f32, b: f32) -> f32 { return min(max(x, a), b); }
fn fn_HardSwish(x: f32, a: f32, b: f32) -> f32 { return x * clamp(x * (1.0 / 6.0) + 0.5, 0.0, 1.0); }
fn fn_HardSigmoid(x: f32, a: f32, b: f32) -> f32 { return clamp(x * a + b, 0.0, 1.0); }
fn fn_Sigmoid(x: f32, a: f32, b: f32) -> f32 { return 1.0 / (1.0 + exp(-clamp(x, -87.0, 87.0))); }
fn fn_LeakyRelu(x: f32, a: f32, b: f32) -> f32 { return select(x, x * a, x < 0.0); }
fn fn_Gelu(x: f32, a: f32, b: f32) -> f32 { return 0.5 * x * (1.0 + erf(x * 0.70710678)); }
fn fn_GeluTanh(x: f32, a: f32, b: f32) -> f32 { return 0.5 * x * (1.0 + tanh_bounded(0.79788456 * (x + 0.044715 * x * x * x))); }
fn fn_Silu(x: f32, a: f32, b: f32) -> f32 { return x * fn_Sigmoid(x, a, b); }
fn fn_Tanh(x: f32, a: f32, b: f32) -> f32 { return tanh_bounded(x); }
fn fn_Erf(x: f32, a: f32, b: f32) -> f32 { return erf(x); }
fn fn_Exp(x: f32, a: f32, b: f32) -> f32 { return exp(x); }
fn fn_Log(x: f32, a: f32, b: f32) -> f32 { return log(x); }
fn fn_Sqrt(x: f32, a: f32, b: f32) -> f32 { return sqrt(x); }
fn fn_Neg(x: f32, a: f32, b: f32) -> f32 { return -x; }
fn fn_Abs(x: f32, a: f32, b: f32) -> f32 { return abs(x); }
fn fn_Reciprocal(x: f32, a: f32, b: f32) -> f32 { return 1.0 / x; }
fn fn_Elu(x: f32, a: f32, b: f32) -> f32 { return select(x, a * (exp(min(x, 0.0)) - 1.0), x < 0.0); }
fn fn_Softplus(x: f32, a: f32, b: f32) -> f32 { return softplus(x); }
fn fn_Mish(x: f32, a: f32, b: f32) -> f32 { return x * tanh_bounded(softplus(x)); }
fn fn_Sin(x: f32, a: f32, b: f32) -> f32 { return sin(x); }
fn fn_Cos(x: f32, a: f32, b: f32) -> f32 { return cos(x); }
fn fn_Floor(x: f32, a: f32, b: f32) -> f32 { return floor(x); }
fn fn_Ceil(x: f32, a: f32, b: f32) -> f32 { return ceil(x); }
fn fn_Round(x: f32, a: f32, b: f32) -> f32 { return round(x); }
fn fn_Sign(x: f32, a: f32, b: f32) -> f32 { return sign(x); }

fn op_Add(a: f32, b: f32) -> f32 { return a + b; }
fn op_Sub(a: f32, b: f32) -> f32 { return a - b; }
fn op_Mul(a: f32, b: f32) -> f32 { return a * b; }
fn op_Div(a: f32, b: f32) -> f32 { return a / b; }
fn op_Max(a: f32, b: f32) -> f32 { return max(a, b); }
fn op_Min(a: f32, b: f32) -> f32 { return min(a, b); }
fn op_Mod(a: f32, b: f32) -> f32 { return a - b * floor(a / b); }
fn op_FMod(a: f32, b: f32) -> f32 { return a - b * trunc(a / b); }
fn op_PRelu(a: f32, b: f32) -> f32 { return select(a, a * b, a < 0.0); }
fn op_Pow(a: f32, b: f32) -> f32 {
    // WGSL's pow is defined for positive bases only.
    if (b == 2.0) { return a * a; }
    if (b == 0.0) { return 1.0; }
    let size = pow(abs(a), b);
    return select(size, -size, a < 0.0 && abs(b - 2.0 * floor(b * 0.5)) == 1.0);
}
