//! Growth over images: convolutions and poolings of every stride and padding.

use std::fmt::Write;

use proptest::prelude::*;
use proptest::sample::select;

use super::{Builder, Growth};

/// How an operator walks over images.
#[derive(Debug, Clone, Copy)]
pub(super) struct ImageWalk {
    kernel: [u64; 2],
    stride: [u64; 2],
    padding: [u64; 4],
}

impl ImageWalk {
    /// Lines and pixels a line that are made of an image; `None` where the kernel does not fit.
    fn made(&self, image: [u64; 2]) -> Option<[u64; 2]> {
        let along = |axis: usize| {
            let padded = image[axis] + self.padding[axis] + self.padding[axis + 2];
            Some(padded.checked_sub(self.kernel[axis])? / self.stride[axis] + 1)
        };
        Some([along(0)?, along(1)?])
    }
}

impl Builder {
    /// An operator that walks over the images made last; nothing where its kernel does not fit. It has so many filters in each of
    /// so many groups, if these divide the channels, or is a pooling without filters.
    pub(super) fn over_images(&mut self, kind: &str, walk: &ImageWalk, filters: Option<(u64, u64)>) {
        let (last, channels) = self.last();
        let Some([lines, pixels]) = walk.made(self.image) else { return };
        let ImageWalk { kernel, stride, padding } = walk;
        let mut options =
            format!("image = {:?}\nkernel = {kernel:?}\nstride = {stride:?}\npadding = {padding:?}\n", self.image);
        self.rows = self.rows / (self.image[0] * self.image[1]) * lines * pixels;
        self.image = [lines, pixels];
        match filters {
            Some((groups, of_group)) => {
                let groups = if channels.is_multiple_of(groups) { groups } else { 1 };
                let weight = self.given("weight", (channels / groups * kernel[0] * kernel[1], groups * of_group), None);
                let _ = writeln!(options, "groups = {groups}");
                self.operator(kind, &[&last, &weight], groups * of_group);
            }
            None => {
                self.operator(kind, &[&last], channels);
            }
        }
        self.operators += &options;
    }
}

/// Convolutions and poolings.
pub(super) fn over_images() -> impl Strategy<Value = Growth> {
    let walk = || {
        let sides = || select(vec![3u64, 3, 1, 2, 5]);
        let steps = || select(vec![1u64, 1, 2, 3]);
        let paddings = || select(vec![0u64, 0, 1, 2]);
        ([sides(), sides()], [steps(), steps()], [paddings(), paddings(), paddings(), paddings()])
            .prop_map(|(kernel, stride, padding)| ImageWalk { kernel, stride, padding })
    };
    let groups = prop_oneof![3 => Just(1u64), 1 => select(vec![2u64, 4, 8])];
    prop_oneof![
        3 => (walk(), groups, 1u64..=48).prop_map(|(walk, groups, filters)| Growth::Conv(walk, (groups, filters.div_ceil(groups)))),
        1 => (select(vec!["max_pool", "average_pool"]), walk()).prop_map(|(kind, walk)| Growth::Pool(kind, walk)),
    ]
}
