use super::*;

fn shipped(name: &str) -> Workload {
    load(Path::new(&format!("workloads/{name}.toml")), &[], 0).unwrap_or_else(|error| panic!("{}", error.render(false)))
}

#[test]
fn gpt13b_has_the_known_sizes() {
    let dense = shipped("gpt13b-mlp");
    assert_eq!(dense.operators.ids().map(|id| dense.dense_macs(id)).sum::<u64>(), 429_496_729_600);
    let sparse = shipped("gpt13b-mlp-sparse");
    assert_eq!(sparse.operators.ids().map(|id| sparse.stored_macs(id)).sum::<u64>(), 53_687_091_200);
    shipped("gpt2-small-mlp");
    shipped("tiny-mlp");
}
