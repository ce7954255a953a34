//! Max-min fair sharing of resources by concurrent activities, advanced in whole ticks.
//!
//! An *activity* has an amount of work and uses one or more *resources*: at rate x (amount per tick) it takes `weight · x`
//! of the capacity of each of them. All the members of a multicast tree or of a lockstep group are one activity, whose
//! weight on a resource is what the members together take of it. An activity may have a rate cap.
//!
//! The rates of the active activities are *max-min fair*: no rate can be raised without lowering one that is as low or
//! lower. Equivalently, every activity runs at its own limit (its cap, or the whole of one of its resources), or has a
//! *bottleneck*: a resource with no capacity left, on which no other activity is faster. They are found by progressive
//! filling (Bertsekas and Gallager, *Data Networks*, second edition, 1992, section 6.5.2), with a weight for each use as in
//! `SimGrid`'s `lmm` (Casanova, Giersch, Legrand, Quinson and Suter, *Versatile, scalable, and accurate simulation of
//! distributed applications and platforms*, JPDC 74(10), 2014). Fairness is in the rates, so the unit of an activity's
//! amount decides what is fair: with the flits of a group's longest flow as the unit, groups get equal flits for each of
//! their flows. Where the weights of an activity differ between resources this is not the bottleneck max fairness of
//! Bonald and Roberts (*Multi-resource fairness*, SIGMETRICS 2015), which equalises what is taken of a bottleneck instead;
//! that allocation need not be unique and is a fixed point rather than a finite computation.
//!
//! Invariants:
//! - Conservation: the rates times the weights never exceed a capacity. Rates are rounded down to 2^-32 a tick.
//! - Rates are a function of the set of active activities and their caps alone, whatever the order in which they started.
//! - Amounts are exact at the rounded rates; a completion is rounded up to a tick, so that nothing is left over.
//! - Nothing here knows a chip, a float or a clock.

mod filling;
mod rate;
mod tables;
#[cfg(test)]
mod tests;
mod timeline;

pub use filling::Counters;
pub use rate::{RATE_BITS, Rate};
pub use tables::{ActivityId, FluidError, ResourceId, Usage};
pub use timeline::{Completion, Fluid};
