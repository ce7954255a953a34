//! Resources, activities, and which of them are active.

use rdusim_base::id_type;
use rdusim_base::index::IndexVec;

use super::rate::{RATE_BITS, Rate};

id_type! {
    /// A resource of a [`Fluid`](super::Fluid).
    ResourceId
}

id_type! {
    /// An activity of a [`Fluid`](super::Fluid); it may be started again after it has completed.
    ActivityId
}

/// One activity's use of one resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// The resource.
    pub resource: ResourceId,
    /// Capacity taken for each unit of amount; 0 takes nothing.
    pub weight: u32,
}

/// Why a call was refused; it has changed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FluidError {
    /// A use names a resource that was not added.
    #[error("resource {0:?} does not exist")]
    UnknownResource(ResourceId),
    /// The activity was not added.
    #[error("activity {0:?} does not exist")]
    UnknownActivity(ActivityId),
    /// The activity was started and has not completed.
    #[error("activity {0:?} is active already")]
    AlreadyActive(ActivityId),
}

/// A use of a resource, as the resource sees it.
#[derive(Debug, Clone, Copy)]
pub(super) struct User {
    pub(super) activity: ActivityId,
    pub(super) weight: u64,
}

/// One resource.
#[derive(Debug)]
pub(super) struct Resource {
    /// Capacity per tick, in units of 2^-32.
    pub(super) capacity: u64,
    /// What its active users would take together if each ran at its own limit, in units of 2^-32 a tick.
    demand: u128,
    /// All activities that use it, active or not, in the order of their ids.
    pub(super) users: Vec<User>,
}

impl Resource {
    /// Whether its active users may take more than its capacity. Where they may not, it limits nobody.
    pub(super) fn is_contended(&self) -> bool {
        self.demand > u128::from(self.capacity)
    }
}

/// A use of a resource, as the activity sees it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Use {
    pub(super) resource: ResourceId,
    pub(super) weight: u64,
}

/// One activity.
#[derive(Debug)]
pub(super) struct Activity {
    /// Its uses, in `Tables::uses`: first, and one behind the last.
    uses: (usize, usize),
    /// The highest rate that its resources allow it alone.
    alone: Rate,
    /// The same with the cap of its current run: its own limit.
    pub(super) limit: Rate,
    pub(super) is_active: bool,
}

/// All resources and activities.
#[derive(Debug, Default)]
pub(super) struct Tables {
    pub(super) resources: IndexVec<ResourceId, Resource>,
    pub(super) activities: IndexVec<ActivityId, Activity>,
    /// Uses of all activities, one activity behind the other.
    uses: Vec<Use>,
}

impl Tables {
    pub(super) fn add_resource(&mut self, capacity: u32) -> ResourceId {
        let capacity = u64::from(capacity) << RATE_BITS;
        self.resources.push(Resource { capacity, demand: 0, users: Vec::new() })
    }

    pub(super) fn add_activity(&mut self, usages: &[Usage]) -> Result<ActivityId, FluidError> {
        if let Some(usage) = usages.iter().find(|usage| self.resources.get(usage.resource).is_none()) {
            return Err(FluidError::UnknownResource(usage.resource));
        }
        let mut usages: Vec<Usage> = usages.iter().filter(|usage| usage.weight > 0).copied().collect();
        usages.sort_by_key(|usage| usage.resource);
        let first = self.uses.len();
        for Usage { resource, weight } in usages {
            let weight = u64::from(weight);
            match self.uses[first..].last_mut() {
                Some(last) if last.resource == resource => last.weight += weight,
                _ => self.uses.push(Use { resource, weight }),
            }
        }
        let own = &self.uses[first..];
        let alone = own.iter().map(|usage| self.resources[usage.resource].capacity / usage.weight).min();
        let alone = alone.map_or(Rate::MAX, Rate::from_units);
        let uses = (first, self.uses.len());
        let activity = self.activities.push(Activity { uses, alone, limit: alone, is_active: false });
        for &Use { resource, weight } in &self.uses[first..] {
            self.resources[resource].users.push(User { activity, weight });
        }
        Ok(activity)
    }

    /// What an activity uses, in the order of the resources.
    pub(super) fn uses(&self, activity: ActivityId) -> &[Use] {
        let (first, end) = self.activities[activity].uses;
        &self.uses[first..end]
    }

    /// Makes an activity active, with a limit of its own no higher than `cap`.
    pub(super) fn enter(&mut self, activity: ActivityId, cap: Rate) {
        let row = &mut self.activities[activity];
        row.limit = row.alone.min(cap);
        row.is_active = true;
        let (limit, (first, end)) = (row.limit.units(), row.uses);
        for usage in &self.uses[first..end] {
            // No more than the capacity: within 64 bits.
            self.resources[usage.resource].demand += u128::from(usage.weight * limit);
        }
    }

    /// Makes an active activity inactive; `contended` gets the resources where its leaving may raise other rates.
    pub(super) fn leave(&mut self, activity: ActivityId, contended: &mut Vec<ResourceId>) {
        let row = &mut self.activities[activity];
        row.is_active = false;
        let (limit, (first, end)) = (row.limit.units(), row.uses);
        for usage in &self.uses[first..end] {
            let resource = &mut self.resources[usage.resource];
            if resource.is_contended() {
                contended.push(usage.resource);
            }
            resource.demand -= u128::from(usage.weight * limit);
        }
    }
}
