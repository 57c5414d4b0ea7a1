//! Files: which are manifests, and their text.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::problem::Trouble;

/// What is found under a file's name.
pub(super) enum Listed {
    Text(String),
    Gone,
}

/// The manifests of a directory, or the one file itself.
pub(super) fn list(path: &Path) -> io::Result<BTreeSet<PathBuf>> {
    if !fs::metadata(path)?.is_dir() {
        return Ok(BTreeSet::from([path.to_path_buf()]));
    }
    let mut files = BTreeSet::new();
    for entry in fs::read_dir(path)? {
        let file = entry?.path();
        if has_manifest_name(&file) && !file.is_dir() {
            files.insert(file);
        }
    }
    Ok(files)
}

/// Whether a file of a directory is read: by its ending, and not if it is hidden.
pub(super) fn has_manifest_name(file: &Path) -> bool {
    let hidden = file
        .file_name()
        .is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
    let ending = file.extension().and_then(|ending| ending.to_str());
    !hidden && matches!(ending, Some("yaml" | "yml" | "json"))
}

pub(super) fn read(file: &Path) -> Result<Listed, Trouble> {
    let is_missing = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    match fs::metadata(file) {
        // To open a pipe would wait for someone to write to it, for ever.
        Ok(data) if !data.is_file() => return Err(Trouble::NotAFile),
        Ok(_) => {}
        // A link that leads nowhere is a mistake, or half of a change: nobody removed it.
        Err(error) if is_missing(&error) => {
            return match fs::read_link(file) {
                Ok(target) => Err(Trouble::Dangling(target)),
                Err(_) => Ok(Listed::Gone),
            };
        }
        Err(error) => return Err(Trouble::Unreadable(error)),
    }
    match fs::read_to_string(file) {
        Ok(text) => Ok(Listed::Text(text)),
        Err(error) if is_missing(&error) => Ok(Listed::Gone),
        Err(error) => Err(Trouble::Unreadable(error)),
    }
}
