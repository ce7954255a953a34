//! The softmax over tiles of keys: a running maximum and sum, and the factors that bring what was added up before to the new
//! maximum (Milakov and Gimelshein 2018). The factors of all tiles behind a tile, and the last sum, make its exponentials shares.

/// Maximum and sum of exponentials of a row and head so far, and the maxima behind each tile of keys.
#[derive(Debug, Clone)]
pub(super) struct Running {
    most: f32,
    /// Of the exponentials below the maximum.
    pub(super) sum: f32,
    maxima: Vec<f32>,
}

impl Running {
    /// Before the first tile: a sink, if the head has one, is in the sum from the beginning.
    pub(super) fn new(sink: Option<f32>) -> Self {
        let sum = if sink.is_some() { 1.0 } else { 0.0 };
        Self { most: sink.unwrap_or(f32::NEG_INFINITY), sum, maxima: Vec::new() }
    }

    /// Takes the scores of a tile: their exponentials, and the factor that brings what was added up before to the new maximum.
    pub(super) fn take(&mut self, scores: &[f32]) -> (Vec<f32>, f32) {
        let most = scores.iter().copied().fold(self.most, f32::max);
        // Of a row that sees no key yet, nothing is added up.
        let below = |x: f32| if most == f32::NEG_INFINITY { 0.0 } else { libm::expf(x - most) };
        let factor = below(self.most);
        let exponentials: Vec<f32> = scores.iter().map(|&x| below(x)).collect();
        self.sum = self.sum * factor + exponentials.iter().sum::<f32>();
        self.most = most;
        self.maxima.push(most);
        (exponentials, factor)
    }

    /// What the exponentials of a tile are to be multiplied with to be shares of all.
    pub(super) fn share(&self, tile: usize) -> f64 {
        let below = f64::from(self.maxima[tile]) - f64::from(self.most);
        libm::exp(below) / f64::from(self.sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_of_keys_give_the_softmax_of_the_row() {
        let row = [0.5f32, -3.0, 2.0, 2.5, -40.0, 7.0, 7.0, 1.0, f32::NEG_INFINITY];
        for tile in 1..=row.len() {
            let mut running = Running::new(None);
            let tiles: Vec<(Vec<f32>, f32)> = row.chunks(tile).map(|scores| running.take(scores)).collect();
            let shares = tiles.iter().enumerate().flat_map(|(t, (list, _))| {
                let share = running.share(t);
                list.iter().map(move |&x| f64::from(x) * share)
            });
            let sum: f64 = row.iter().map(|&x| libm::exp(f64::from(x) - 7.0)).sum();
            for (found, &x) in shares.zip(&row) {
                assert!((found - libm::exp(f64::from(x) - 7.0) / sum).abs() < 1e-6, "{tile}");
            }
            // The factors bring the exponentials of the first tile to the last maximum.
            let factors: f32 = tiles[1..].iter().map(|(_, factor)| factor).product();
            assert!((f64::from(factors) - libm::exp(f64::from(running.maxima[0]) - 7.0)).abs() < 1e-6, "{tile}");
        }
    }

    #[test]
    fn a_sink_takes_its_part_of_the_sum_in_any_tiles() {
        // Two scores of 0 and a sink of ln 2: shares of 1 / (1 + 1 + 2).
        for tile in [1, 2] {
            let mut running = Running::new(Some(libm::logf(2.0)));
            let tiles: Vec<Vec<f32>> = [0.0f32; 2].chunks(tile).map(|scores| running.take(scores).0).collect();
            for (t, list) in tiles.iter().enumerate() {
                assert!(list.iter().all(|&x| (f64::from(x) * running.share(t) - 0.25).abs() < 1e-6), "{tile}");
            }
        }
    }

    #[test]
    fn a_row_that_sees_no_key_of_the_first_tile_begins_with_the_next() {
        let mut running = Running::new(None);
        assert_eq!(running.take(&[f32::NEG_INFINITY; 2]), (vec![0.0; 2], 0.0));
        assert_eq!(running.take(&[1.0, 1.0]), (vec![1.0; 2], 0.0));
        assert_eq!((running.sum, running.share(1)), (2.0, 0.5));
    }
}
