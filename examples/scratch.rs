use rdusim::*;
use std::path::Path;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let chip = arch::load(Path::new(&a[1]), &[]).unwrap();
    let sets: Vec<_> = a[3..].iter().map(|s| rdusim::input::Override::parse(s).unwrap()).collect();
    let w = workload::load(Path::new(&a[2]), &sets, 0).unwrap();
    for mode in [sim::Mode::Kbk, sim::Mode::Fused] {
        let t = std::time::Instant::now();
        let c = match compile::compile(&chip, &w, mode) {
            Ok(c) => c,
            Err(e) => {
                println!("{}", e.render(false));
                return;
            }
        };
        println!("{:?} compile {:.3}s", mode, t.elapsed().as_secs_f64());
        for s in &c.sections {
            println!(
                "  {} est {} pmus {} sram {:.1} MiB loss {:.1} flows {} nest {:?} chunks {} tokens {} blocks {}",
                s.name,
                s.estimated_cycles,
                s.pmus,
                s.sram_bytes as f64 / 1048576.0,
                s.sram_bank_loss_bytes as f64 / 1048576.,
                s.flows.len(),
                s.nest,
                s.nest.chunks(),
                s.nest.tokens(),
                s.nest.blocks()
            );
            for st in &s.stages {
                println!("     {:?} {:?} pcus {}", st.mapping, st.cadence, st.pcus.len());
            }
            for b in &s.buffers {
                println!(
                    "     {:?} x{}x{} depth {} slot {} banks/piece {}",
                    b.spec.role,
                    b.spec.copies,
                    b.spec.slices,
                    b.spec.depth,
                    b.spec.slot_bytes,
                    b.spec.banks(&chip)
                );
            }
            for o in &s.streams {
                println!("     {:?} ags {}", o.stream, o.ags.len());
            }
        }
        for n in &c.notes {
            println!("  note: {n}");
        }
        let links: usize = c.sections.iter().flat_map(|s| &s.flows).map(|f| f.route.len()).sum();
        println!("  route resources {links}");
    }
}
