//! tmp
use rdusim::mode::Mode;
use rdusim::sim::run_section;
use std::time::Instant;
fn main() {
    for a in ["sn10", "sn40l"] {
        for w in ["gpt13b-mlp", "gpt13b-mlp-sparse"] {
            let chip = rdusim::arch::load(format!("arch/{a}.toml").as_ref(), &[]).unwrap();
            let wl = rdusim::workload::load(format!("workloads/{w}.toml").as_ref(), &[], 0).unwrap();
            let c = rdusim::compile::compile(&chip, &wl, Mode::Fused).unwrap_or_else(|_| panic!());
            let mut s = c.sections[0].clone();
            println!("{a} {w} sections {} nest {:?}", c.sections.len(), s.nest);
            for rows in [2048, 2048, 2048, 2048, 2097152] {
                if rows > 65536 && w.ends_with("sparse") {
                    continue;
                }
                s.nest.rows = rows;
                let t = Instant::now();
                let r = run_section(&chip, &wl, &s, true).unwrap();
                let e = t.elapsed();
                println!("  rows {rows} events {} cycles {} {:.1} ms", r.events, r.cycles, e.as_secs_f64() * 1e3);
            }
            s.nest.rows = 2048;
            let t = Instant::now();
            let r = run_section(&chip, &wl, &s, false).unwrap();
            println!(
                "  no skip 2048 events {} cycles {} {:.1} ms",
                r.events,
                r.cycles,
                t.elapsed().as_secs_f64() * 1e3
            );
        }
    }
}
