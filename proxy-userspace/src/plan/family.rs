//! One thing of each IP family.

use crate::model::Family;

#[derive(Debug)]
pub(super) struct PerFamily<T> {
    pub(super) v4: T,
    pub(super) v6: T,
}

impl<T> PerFamily<T> {
    pub(super) fn new(make: impl Fn() -> T) -> Self {
        Self {
            v4: make(),
            v6: make(),
        }
    }

    pub(super) const fn of(&self, family: Family) -> &T {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        }
    }

    pub(super) const fn of_mut(&mut self, family: Family) -> &mut T {
        match family {
            Family::V4 => &mut self.v4,
            Family::V6 => &mut self.v6,
        }
    }
}
