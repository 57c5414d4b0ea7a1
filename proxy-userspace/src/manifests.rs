//! Manifests in files: Services, `EndpointSlices`, Nodes and `ServiceCIDRs` for a node without an
//! API server.
//!
//! [`Source`] remembers what each file declared, so that a file that changed costs only itself and
//! yields only the objects that differ. What cannot be read takes nothing away: an object that is
//! refused, and whatever a broken document may have described, stays as it was last good. Nor does
//! a source that declares nothing at all any more, unless the operator says that it may.

mod declared;
mod documents;
mod files;
mod parse;
mod problem;
mod raw;
mod watch;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use problem::{Problem, Trouble};
pub use watch::{Follower, Wake, follow};

use crate::cluster::Selectors;
use crate::model::{Aside, Change, ObjectKey};
use declared::Declared;
use files::{Listed, has_manifest_name};
use parse::{Parsed, parse};

/// What reading files brought to light.
#[derive(Debug, Default)]
pub struct Update {
    /// Objects that differ from before.
    pub changes: Vec<Change>,
    /// What could not be used.
    pub problems: Vec<Problem>,
    /// How the manifests stand after it.
    pub standing: Standing,
}

/// How the manifests stand.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    /// Whether nothing is declared, which is not taken for the operator's wish.
    pub is_held_back: bool,
    /// Files that were read.
    pub files: usize,
    /// Objects that are declared.
    pub objects: usize,
    /// Whether all that is declared is known: nothing that cannot be used hides an object.
    pub is_complete: bool,
    /// Everything that cannot be used at present.
    pub problems: Arc<[String]>,
    /// Services that are declared and none for us.
    pub asides: Arc<[Aside]>,
}

/// A file or directory of manifests and what was last read there.
#[derive(Debug)]
pub struct Source {
    path: PathBuf,
    may_be_empty: bool,
    selectors: Selectors,
    /// Whether the last reading found nothing and was held back.
    is_held_back: bool,
    files: BTreeMap<Arc<Path>, HashSet<ObjectKey>>,
    declared: Declared,
    /// What cannot be used of each file.
    bad: BTreeMap<PathBuf, Vec<String>>,
    /// Files that may declare more than could be used.
    gaps: BTreeSet<PathBuf>,
    /// Services of each file that are none for us.
    asides: BTreeMap<PathBuf, Vec<Aside>>,
    has_other_asides: bool,
    standing: Standing,
}

/// What a file holds, or that it is gone.
type Reading = (PathBuf, Parsed);

impl Source {
    /// Manifests at `path`; nothing is read yet.
    pub fn new(path: PathBuf) -> Self {
        Self {
            // Changes are told by absolute paths. It fails for nothing but an empty one.
            path: std::path::absolute(&path).unwrap_or(path),
            may_be_empty: false,
            selectors: Selectors::default(),
            is_held_back: false,
            files: BTreeMap::new(),
            declared: Declared::default(),
            bad: BTreeMap::new(),
            gaps: BTreeSet::new(),
            asides: BTreeMap::new(),
            has_other_asides: false,
            standing: Standing::default(),
        }
    }

    /// The same; if `yes`, a source that declares nothing any more deletes everything.
    #[must_use]
    pub const fn allow_empty(mut self, yes: bool) -> Self {
        self.may_be_empty = yes;
        self
    }

    /// The same; objects that these label selectors leave out are none.
    #[must_use]
    pub const fn select(mut self, selectors: Selectors) -> Self {
        self.selectors = selectors;
        self
    }

    /// Where the manifests are.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads every file.
    pub fn read_all(&mut self) -> Update {
        let mut update = Update::default();
        match files::list(&self.path) {
            Ok(mut files) => {
                files.extend(self.files.keys().map(|file| file.to_path_buf()));
                self.read_into(files, &mut update);
            }
            Err(error) if self.may_be_empty && error.kind() == io::ErrorKind::NotFound => {
                let files = self.files.keys().map(|file| file.to_path_buf());
                self.read_into(files.collect(), &mut update);
            }
            Err(error) => {
                let problem = Problem::of_file(&self.path, Trouble::Unreadable(error));
                self.is_held_back = true;
                self.bad.remove(&self.path);
                self.note(problem, &mut update);
            }
        }
        self.finish(&mut update);
        update
    }

    /// Reads these files, as far as they are manifests.
    pub fn read(&mut self, files: &BTreeSet<PathBuf>) -> Update {
        // What was held back may count now.
        if self.is_held_back {
            return self.read_all();
        }
        let mut update = Update::default();
        self.read_into(files.clone(), &mut update);
        self.finish(&mut update);
        update
    }

    /// Whether a change of `file` concerns this source.
    pub fn includes(&self, file: &Path) -> bool {
        file == self.path || (file.parent() == Some(&self.path) && has_manifest_name(file))
    }

    fn read_into(&mut self, files: BTreeSet<PathBuf>, update: &mut Update) {
        self.bad.remove(&self.path);
        let mut readings: Vec<Reading> = Vec::with_capacity(files.len());
        for file in files {
            if !self.includes(&file) {
                continue;
            }
            match files::read(&file) {
                Ok(Listed::Text(text)) => {
                    let parsed = parse(&file, &text, self.selectors);
                    readings.push((file, parsed));
                }
                // A file of the directory was removed; the one file that was asked for was not.
                Ok(Listed::Gone) if self.may_be_empty || file != self.path => {
                    readings.push((file, Parsed::default()));
                }
                Ok(Listed::Gone) => {
                    let missing = Trouble::Unreadable(io::ErrorKind::NotFound.into());
                    self.gaps.insert(file.clone());
                    self.note(Problem::of_file(&file, missing), update);
                }
                Err(trouble) => {
                    self.bad.remove(&file);
                    self.gaps.insert(file.clone());
                    self.note(Problem::of_file(&file, trouble), update);
                }
            }
        }
        self.is_held_back = !self.may_be_empty && self.leaves_nothing(&readings);
        if self.is_held_back {
            let problem = Problem::of_file(&self.path, Trouble::Emptied);
            return self.note(problem, update);
        }
        self.take(readings, update);
    }

    /// Whether these readings would take away all there is.
    fn leaves_nothing(&self, readings: &[Reading]) -> bool {
        let is_read = |file: &Path| readings.iter().any(|(read, _)| read == file);
        let stays = |file: &Path, parsed: &Parsed| {
            let mut held = self.files.get(file).into_iter().flatten();
            !parsed.objects.is_empty() || held.any(|key| parsed.keeps(key))
        };
        !readings.iter().any(|(file, parsed)| stays(file, parsed))
            && !(self.files.iter()).any(|(file, held)| !held.is_empty() && !is_read(file))
    }

    /// Replaces what these files declare. All is declared before anything is withdrawn: an object
    /// may have moved from one file to another.
    fn take(&mut self, readings: Vec<Reading>, update: &mut Update) {
        let mut left = Vec::new();
        let mut touched = BTreeSet::new();
        for (path, mut parsed) in readings {
            self.bad.remove(&path);
            if parsed.has_gaps() {
                self.gaps.insert(path.clone());
            } else {
                self.gaps.remove(&path);
            }
            self.note_asides(&path, std::mem::take(&mut parsed.asides));
            let (file, old) = match self.files.remove_entry(&*path) {
                Some((file, old)) => (file, old),
                None => (Arc::from(&*path), HashSet::new()),
            };
            let is_gone = parsed.is_nothing();
            for problem in std::mem::take(&mut parsed.problems) {
                self.note(problem, update);
            }
            let objects = std::mem::take(&mut parsed.objects);
            let mut new = HashSet::with_capacity(objects.len());
            for (place, object) in objects {
                let key = object.key();
                if new.contains(&key) {
                    self.note(Problem::duplicate(&file, place, &key, &file), update);
                    continue;
                }
                let changes = &mut update.changes;
                if self.declared.set(&key, &file, place, object, changes) {
                    touched.insert(key.clone());
                }
                new.insert(key);
            }
            for key in old {
                if new.contains(&key) {
                    continue;
                }
                if parsed.keeps(&key) {
                    new.insert(key);
                } else {
                    left.push((key, Arc::clone(&file)));
                }
            }
            if !is_gone {
                self.files.insert(file, new);
            }
        }
        for (key, file) in left {
            self.declared.withdraw(key, &file, &mut update.changes);
        }
        let duplicates = touched.iter().flat_map(|key| self.declared.duplicates(key));
        update.problems.extend(duplicates);
    }

    /// Remembers the Services of a file that are none for us.
    fn note_asides(&mut self, path: &Path, new: Vec<Aside>) {
        if self.asides.get(path).map_or(&[][..], Vec::as_slice) == new {
            return;
        }
        self.has_other_asides = true;
        if new.is_empty() {
            self.asides.remove(path);
        } else {
            self.asides.insert(path.into(), new);
        }
    }

    /// Passes a problem on and remembers it.
    fn note(&mut self, problem: Problem, update: &mut Update) {
        let known = self.bad.entry(problem.file.clone()).or_default();
        known.push(problem.to_string());
        update.problems.push(problem);
    }

    fn finish(&mut self, update: &mut Update) {
        let duplicates = self
            .declared
            .all_duplicates()
            .map(|problem| problem.to_string());
        let bad = self.bad.values().flatten().cloned();
        self.standing.is_held_back = self.is_held_back;
        self.standing.is_complete = !self.is_held_back && self.gaps.is_empty();
        self.standing.files = self.files.len();
        self.standing.objects = self.declared.len();
        if std::mem::take(&mut self.has_other_asides) {
            self.standing.asides = self.asides.values().flatten().cloned().collect();
        }
        self.standing.problems = bad.chain(duplicates).collect();
        update.standing = self.standing.clone();
    }
}

#[cfg(test)]
mod tests;
