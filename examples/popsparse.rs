use rdusim::arch::{self, AnyChip};
use rdusim::bsp::{Blocks, Product, SparseProduct, dynamic_plan, parts_of, plan_gemm, static_plan};
use rdusim::sparsity::BlockMask;
use rdusim::units::Dtype;
fn main() {
    let AnyChip::Bsp(chip) = arch::open(std::path::Path::new("arch/bow.toml"), &[]).unwrap() else { panic!() };
    let avail = chip.planner.memory_share * chip.tile.sram_bytes as f64;
    let clock = chip.clock_hz as f64;
    for (dtype, name) in [(Dtype::Fp16, "fp16"), (Dtype::Fp32, "fp32")] {
        let m = 4096u64;
        let mut best_dense = (0.0f64, 0u64);
        for e in 4..=15 {
            let n = 1u64 << e;
            let p = Product { count: 1, m: n, n: m, k: m, dtype, a_home: true, b_home: true, available: avail };
            let Some(plan) = plan_gemm(&chip, &p) else { continue };
            let fits = rdusim::bsp::most_temporary(&plan.steps) <= avail;
            let live = ((m * m + 2 * m * n) * dtype.bytes()) as f64 / 1472.0;
            let ok = fits && live + rdusim::bsp::most_temporary(&plan.steps) < chip.tensor_bytes() as f64;
            let tf = 2.0 * (m * m * n) as f64 / (plan.cycles / clock) / 1e12;
            println!("{name} dense n={n} {tf:.1} TF fits {ok} {:?} {:?}", plan.grid, parts_of(&chip, &plan.steps));
            if ok && tf > best_dense.0 { best_dense = (tf, n); }
        }
        println!("{name} best dense {best_dense:?}");
        for b in [1u64, 4, 8, 16] {
            let d = 1.0 / 16.0;
            let mask = BlockMask::random(m, m, (b, b), d, 7);
            let blocks = Blocks::of(&mask);
            for (kind, f) in [("static", true), ("dynamic", false)] {
                let mut best = (0.0f64, 0u64, String::new());
                for e in 4..=15 {
                    let n = 1u64 << e;
                    let p = SparseProduct { blocks: &blocks, columns: n, dtype, available: avail };
                    let Some(plan) = (if f { static_plan(&chip, &p) } else { dynamic_plan(&chip, &p) }) else { continue };
                    let temp = rdusim::bsp::most_temporary(&plan.steps);
                    let live = (2 * m * n * dtype.bytes()) as f64 / 1472.0 + (m * m) as f64 * d * dtype.bytes() as f64 / 1472.0;
                    let ok = temp <= avail && temp + live < chip.tensor_bytes() as f64;
                    let tf = 2.0 * (m * m * n) as f64 * d / (plan.cycles / clock) / 1e12;
                    if std::env::args().any(|a| a == "-v") { println!("   n={n} {tf:.2} ok {ok} {} {:?}", plan.shape, parts_of(&chip, &plan.steps)); }
                    if ok && tf > best.0 { best = (tf, n, format!("{} {:?}", plan.shape, parts_of(&chip, &plan.steps))); }
                }
                println!("{name} b={b} {kind} {:.2} TF at n={} speedup {:.2}  {}", best.0, best.1, best.0 / (best_dense.0 * d), best.2);
            }
        }
    }
}
