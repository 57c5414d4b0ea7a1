//! What the files declare, each object once: the first file that declares it counts.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use super::problem::{Place, Problem};
use crate::model::{Change, Object, ObjectKey};

#[derive(Debug, Default)]
pub(super) struct Declared {
    /// Each object with the files that declare it, in the order of their names.
    objects: HashMap<ObjectKey, Vec<Declaration>>,
    /// Objects that several files declare.
    contested: BTreeSet<ObjectKey>,
}

#[derive(Debug)]
struct Declaration {
    file: Arc<Path>,
    place: Place,
    object: Object,
}

impl Declared {
    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    /// Notes that `file` declares this object; whether it did not before.
    pub(super) fn set(
        &mut self,
        key: &ObjectKey,
        file: &Arc<Path>,
        place: Place,
        object: Object,
        changes: &mut Vec<Change>,
    ) -> bool {
        let all = self.objects.entry(key.clone()).or_default();
        let found = all.binary_search_by(|other| other.file.cmp(file));
        let is_change = match found {
            Ok(0) => all.first().is_some_and(|first| first.object != object),
            Err(0) => all.first().is_none_or(|first| first.object != object),
            Ok(_) | Err(_) => false,
        };
        if is_change {
            changes.push(Change::Set(object.clone()));
        }
        let file = Arc::clone(file);
        let declaration = Declaration {
            file,
            place,
            object,
        };
        match found {
            Ok(at) => {
                if let Some(known) = all.get_mut(at) {
                    *known = declaration;
                }
            }
            Err(at) => all.insert(at, declaration),
        }
        if all.len() > 1 {
            self.contested.insert(key.clone());
        }
        found.is_err()
    }

    /// Notes that `file` declares this object no more.
    pub(super) fn withdraw(&mut self, key: ObjectKey, file: &Path, changes: &mut Vec<Change>) {
        let Some(all) = self.objects.get_mut(&key) else {
            return;
        };
        let Some(at) = all.iter().position(|other| *other.file == *file) else {
            return;
        };
        let gone = all.remove(at);
        if all.len() < 2 {
            self.contested.remove(&key);
        }
        match all.first() {
            Some(heir) if at == 0 && heir.object != gone.object => {
                changes.push(Change::Set(heir.object.clone()));
            }
            Some(_) => {}
            None => {
                self.objects.remove(&key);
                changes.push(Change::Gone(key));
            }
        }
    }

    /// The declarations of an object that do not count.
    pub(super) fn duplicates(&self, key: &ObjectKey) -> Vec<Problem> {
        let Some([first, others @ ..]) = self.objects.get(key).map(Vec::as_slice) else {
            return Vec::new();
        };
        others
            .iter()
            .map(|other| Problem::duplicate(&other.file, other.place, key, &first.file))
            .collect()
    }

    /// All declarations that do not count.
    pub(super) fn all_duplicates(&self) -> impl Iterator<Item = Problem> {
        self.contested.iter().flat_map(|key| self.duplicates(key))
    }
}
