//! Off-chip traffic that no schedule of a GEMM does without, where its operands do not fit on chip.
//!
//! **A GEMM alone.** Smith, Lowery, Langou and van de Geijn (2019, "A tight I/O lower bound for matrix multiplication",
//! arXiv:1702.02017): with room for S elements, an ordinary product of M x K by K x N reads and writes at least `2 M N K / sqrt(S) - 2 S`
//! elements. (Hong and Kung 1981 found the form. In a segment of 2 S reads at most 3 S elements of A, B and C can be used, which are
//! operands of `(3 S / 3)^(3/2)` products by Loomis and Whitney; sums that begin at zero count as reads, as many as results are written.)
//!
//! **A GEMM whose result stays on chip.** Its sums may begin and be complete without any traffic, and so does the product of queries
//! and keys in attention (`FlashAttention`, Dao et al. 2022, theorem 2; its bound has no constants). In a segment of T reads and
//! writes at most S + T elements of A and B can be used. Products whose sums remain, or were there before, are at most
//! `(S + T)/2 sqrt(2 S + T)`. A sum that begins and is complete in the segment needs a whole row of A and a column of B: a rows and
//! b columns with `(a + b) K <= S + T` make `a b K <= (S + T)^2 / (4 K)` products. So at least `T (M N K / both - 1)` elements
//! move, for every T.
//!
//! Both hold only where elements of A and B come from off chip and from nowhere else: not where a section makes (and could
//! recompute) an operand, not for masks or causality (fewer products), windows (an element of the image is many of A), or
//! a matrix times itself.

/// Elements that a GEMM of `products` multiplications moves, if its result goes off chip; `room` elements fit on chip.
pub(super) fn elements_of_gemm(products: f64, room: f64) -> f64 {
    (2.0 * products / room.sqrt() - 2.0 * room).max(0.0)
}

/// Elements that a GEMM of so many products of depth `depth` moves, whatever becomes of its result.
pub(super) fn elements_of_fused_gemm(products: f64, room: f64, depth: f64) -> f64 {
    let of_segment = |factor: f64| {
        let moved = factor * room;
        let (operands, sums) = (room + moved, 2.0 * room + moved);
        let most = operands / 2.0 * sums.sqrt() + operands * operands / (4.0 * depth.max(1.0));
        moved * (products / most - 1.0)
    };
    [0.25, 0.5, 1.0, 2.0, 3.0, 4.0].into_iter().map(of_segment).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        // 1,024 x 1,024 x 1,024 with room for 4,096: 2 * 2^30 / 64 - 8,192.
        let alone = elements_of_gemm(f64::from(1 << 30), 4096.0);
        assert!((alone - f64::from((1 << 25) - 8192)).abs() < 1.0, "{alone}");
        // All fits: nothing beyond the compulsory.
        assert!(elements_of_gemm(1e6, 1e6) <= 0.0 && elements_of_fused_gemm(1e6, 1e6, 100.0) <= 0.0);
        // Attention of 8,192 by 8,192 over 64 with room for 65,536, T = S: products over (2 S)^2 / (4 * 64) + S sqrt(3 S).
        let (products, room) = (8192.0f64 * 8192.0 * 64.0, 65536.0f64);
        let at_s = room * (products / (room * room / 64.0 + room * (3.0 * room).sqrt()) - 1.0);
        assert!(elements_of_fused_gemm(products, room, 64.0) >= at_s && at_s > 0.0, "{at_s}");
    }

    #[test]
    fn blocked_products_are_above() {
        // Square blocks of C that fill the room: 2 M N K / b + M N elements with b * b = room.
        for (size, block) in [(256.0f64, 16.0f64), (1024.0, 32.0), (4096.0, 64.0)] {
            let products = size * size * size;
            let moved = 2.0 * products / block + size * size;
            assert!(elements_of_gemm(products, block * block) <= moved);
            assert!(elements_of_fused_gemm(products, block * block, size) <= moved);
        }
    }
}
