//! Manifests in files: Services, `EndpointSlices` and Nodes for a node without an API server.
//!
//! [`Source`] remembers what each file declared, so that a file that changed costs only itself and
//! yields only the objects that differ. What cannot be read takes nothing away: an object that is
//! refused, and whatever a broken document may have described, stays as it was last good.

mod documents;
mod parse;
mod problem;
mod raw;
mod watch;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use problem::{Problem, Trouble};
pub use watch::{Follower, Wake, follow};

use crate::model::{Change, Object, ObjectKey};
use parse::{Parsed, parse};

/// What reading files brought to light.
#[derive(Debug, Default)]
pub struct Update {
    /// Objects that differ from before.
    pub changes: Vec<Change>,
    /// What could not be used.
    pub problems: Vec<Problem>,
}

/// A file or directory of manifests and what was last read there.
#[derive(Debug)]
pub struct Source {
    path: PathBuf,
    files: BTreeMap<Arc<Path>, HashSet<ObjectKey>>,
    /// Each object with the files that declare it, in the order of their names: the first counts.
    objects: HashMap<ObjectKey, Vec<(Arc<Path>, Object)>>,
}

impl Source {
    /// Manifests at `path`; nothing is read yet.
    pub fn new(path: PathBuf) -> Self {
        Self {
            path,
            files: BTreeMap::new(),
            objects: HashMap::new(),
        }
    }

    /// Where the manifests are.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads every file.
    pub fn read_all(&mut self) -> Update {
        let mut update = Update::default();
        match self.list() {
            Ok(mut files) => {
                files.extend(self.files.keys().map(|file| file.to_path_buf()));
                self.read_into(&files, &mut update);
            }
            Err(error) => update.problems.push(Problem::unreadable(&self.path, error)),
        }
        update
    }

    /// Reads these files, as far as they are manifests.
    pub fn read(&mut self, files: &BTreeSet<PathBuf>) -> Update {
        let mut update = Update::default();
        self.read_into(files, &mut update);
        update
    }

    /// Whether a change of `file` concerns this source.
    pub fn includes(&self, file: &Path) -> bool {
        file == self.path || (file.parent() == Some(&self.path) && has_manifest_name(file))
    }

    fn list(&self) -> io::Result<BTreeSet<PathBuf>> {
        if !std::fs::metadata(&self.path)?.is_dir() {
            return Ok(BTreeSet::from([self.path.clone()]));
        }
        let mut files = BTreeSet::new();
        for entry in std::fs::read_dir(&self.path)? {
            let file = entry?.path();
            if has_manifest_name(&file) && !file.is_dir() {
                files.insert(file);
            }
        }
        Ok(files)
    }

    fn read_into(&mut self, files: &BTreeSet<PathBuf>, update: &mut Update) {
        for file in files {
            if !self.includes(file) {
                continue;
            }
            match std::fs::read_to_string(file) {
                Ok(text) => {
                    let parsed = parse(file, &text);
                    self.take(file, parsed, update);
                }
                // A file of the directory was removed; the one file that was asked for was not.
                Err(error) if error.kind() == io::ErrorKind::NotFound && *file != self.path => {
                    self.take(file, Parsed::default(), update);
                    self.files.remove(file.as_path());
                }
                Err(error) => update.problems.push(Problem::unreadable(file, error)),
            }
        }
    }

    /// Replaces what `file` declares.
    fn take(&mut self, file: &Path, parsed: Parsed, update: &mut Update) {
        let file = match self.files.get_key_value(file) {
            Some((known, _)) => Arc::clone(known),
            None => Arc::from(file),
        };
        let old = self.files.remove(&file).unwrap_or_default();
        update.problems.extend(parsed.problems);

        let mut new = HashSet::with_capacity(parsed.objects.len());
        for (document, object) in parsed.objects {
            let key = object.key();
            let previous = if new.contains(&key) {
                Some(&file)
            } else {
                self.declare(&key, &file, object, update)
            };
            if let Some(previous) = previous {
                update
                    .problems
                    .push(Problem::duplicate(&file, document, &key, previous));
            }
            new.insert(key);
        }
        for key in old {
            if new.contains(&key) {
                continue;
            }
            if parsed.has_unknown || parsed.refused.contains(&key) {
                new.insert(key);
            } else {
                self.withdraw(key, &file, update);
            }
        }
        self.files.insert(file, new);
    }

    /// Notes that `file` declares this object; returns the file whose declaration counts instead.
    fn declare(
        &mut self,
        key: &ObjectKey,
        file: &Arc<Path>,
        object: Object,
        update: &mut Update,
    ) -> Option<&Arc<Path>> {
        let declared = self.objects.entry(key.clone()).or_default();
        let before = declared.first().map(|(_, object)| object.clone());
        match declared.binary_search_by(|(other, _)| other.cmp(file)) {
            Ok(at) => {
                if let Some((_, known)) = declared.get_mut(at) {
                    *known = object;
                }
            }
            Err(at) => declared.insert(at, (Arc::clone(file), object)),
        }
        let (first, now) = declared.first()?;
        if before.as_ref() != Some(now) {
            update.changes.push(Change::Set(now.clone()));
        }
        (first != file).then_some(first)
    }

    fn withdraw(&mut self, key: ObjectKey, file: &Arc<Path>, update: &mut Update) {
        let Some(declared) = self.objects.get_mut(&key) else {
            return;
        };
        let counted = declared.first().is_some_and(|(first, _)| first == file);
        declared.retain(|(other, _)| other != file);
        if !counted {
            return;
        }
        if let Some((_, heir)) = declared.first() {
            update.changes.push(Change::Set(heir.clone()));
        } else {
            self.objects.remove(&key);
            update.changes.push(Change::Gone(key));
        }
    }
}

/// Whether a file of a directory is read: by its ending, and not if it is hidden.
fn has_manifest_name(file: &Path) -> bool {
    let hidden = file
        .file_name()
        .is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
    let ending = file.extension().and_then(|ending| ending.to_str());
    !hidden && matches!(ending, Some("yaml" | "yml" | "json"))
}

#[cfg(test)]
mod tests;
