//! Densities of many layers that together keep a given share of all weights.

/// Rows and columns of a layer's weight.
pub type LayerShape = (u64, u64);

/// Densities by the Erdős–Rényi rule for matrices (ERK, Evci et al., arXiv:1911.11134): a layer keeps in proportion to
/// `(rows + columns) / (rows x columns)`, none more than all, and all together `density` of their elements.
pub fn erk_densities(layers: &[LayerShape], density: f64) -> Vec<f64> {
    let size = |&(rows, columns): &LayerShape| rows as f64 * columns as f64;
    let raw = |&(rows, columns): &LayerShape| (rows as f64 + columns as f64) / (rows as f64 * columns as f64);
    let wanted: f64 = density * layers.iter().map(size).sum::<f64>();
    let mut full = vec![false; layers.len()];
    loop {
        let split =
            |of_full: bool| layers.iter().zip(&full).filter(move |(_, f)| **f == of_full).map(|(layer, _)| layer);
        let left = wanted - split(true).map(size).sum::<f64>();
        let weight: f64 = split(false).map(|layer| raw(layer) * size(layer)).sum();
        let scale = if weight > 0.0 { left / weight } else { 0.0 };
        let over: Vec<usize> = (0..layers.len()).filter(|&i| !full[i] && raw(&layers[i]) * scale > 1.0).collect();
        if over.is_empty() {
            return layers
                .iter()
                .zip(&full)
                .map(|(layer, full)| if *full { 1.0 } else { raw(layer) * scale })
                .collect();
        }
        // Layers that would keep more than all keep all, and the others share what is left.
        for i in over {
            full[i] = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_kept_and_small_layers_stay_denser() {
        let layers = [(64, 64), (1024, 4096), (4096, 1024)];
        let densities = erk_densities(&layers, 0.1);
        let total: f64 = layers.iter().map(|&(r, c)| (r * c) as f64).sum();
        let kept: f64 = layers.iter().zip(&densities).map(|(&(r, c), d)| (r * c) as f64 * d).sum();
        assert!((kept / total - 0.1).abs() < 1e-9, "{densities:?}");
        assert!((densities[0] - 1.0).abs() < 1e-9 && densities[1] < 0.1, "{densities:?}");
        assert!((densities[1] - densities[2]).abs() < 1e-12);
    }

    #[test]
    fn everything_can_be_kept() {
        assert_eq!(erk_densities(&[(8, 8), (100, 3)], 1.0), [1.0, 1.0]);
    }
}
