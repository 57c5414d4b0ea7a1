//! What can be wrong with a manifest, told so that one finds the place.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::cluster::Invalid;
use crate::model::ObjectKey;

/// Something in a manifest that could not be used.
#[derive(Debug, Error)]
pub struct Problem {
    /// The file.
    pub file: PathBuf,
    /// Which document of the file, from 1 on.
    pub document: Option<usize>,
    /// Which item, if the document is a list, from 1 on.
    pub item: Option<usize>,
    /// The object's kind and name, as far as they are known.
    pub object: Option<String>,
    /// What is wrong.
    #[source]
    pub trouble: Trouble,
}

/// What is wrong with a manifest.
#[derive(Debug, Error)]
pub enum Trouble {
    /// The file or directory cannot be read.
    #[error("cannot be read: {0}")]
    Unreadable(io::Error),
    /// A link to nothing.
    #[error("is a link to {}, which is not there; what it declared stays", .0.display())]
    Dangling(PathBuf),
    /// A pipe, a socket, a device.
    #[error("must be a regular file")]
    NotAFile,
    /// Nothing is declared.
    #[error("declares nothing; what was served before stays (--allow-empty deletes it)")]
    Emptied,
    /// Not YAML or JSON.
    #[error("cannot be parsed: {0}")]
    Syntax(String),
    /// Not a mapping.
    #[error("must be an object with apiVersion, kind and metadata")]
    NotAnObject,
    /// A value of another type than the API has there.
    #[error("{field}: {message}")]
    Type {
        /// Path of the field.
        field: String,
        /// What was expected.
        message: String,
    },
    /// A value that is not legal.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The object is declared twice.
    #[error("declared before in {}, which counts", .0.display())]
    Duplicate(PathBuf),
}

impl Trouble {
    /// What kind of trouble it is.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Unreadable(_) | Self::Dangling(_) | Self::NotAFile => "file",
            Self::Emptied => "emptied",
            Self::Syntax(_) | Self::NotAnObject => "syntax",
            Self::Type { .. } => "type",
            Self::Invalid(_) => "value",
            Self::Duplicate(_) => "duplicate",
        }
    }
}

impl Problem {
    /// A problem with a file as a whole.
    pub(super) fn of_file(file: &Path, trouble: Trouble) -> Self {
        Self {
            file: file.into(),
            document: None,
            item: None,
            object: None,
            trouble,
        }
    }

    pub(super) fn duplicate(file: &Path, at: Place, key: &ObjectKey, other: &Path) -> Self {
        Self {
            object: Some(key.to_string()),
            ..at.problem(file, Trouble::Duplicate(other.into()))
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.file.display())?;
        if let Some(document) = self.document {
            write!(f, "document {document}: ")?;
        }
        if let Some(item) = self.item {
            write!(f, "item {item}: ")?;
        }
        if let Some(object) = &self.object {
            write!(f, "{object}: ")?;
        }
        self.trouble.fmt(f)
    }
}

/// A place in a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) document: usize,
    pub(super) item: Option<usize>,
}

impl Place {
    pub(super) fn problem(self, file: &Path, trouble: impl Into<Trouble>) -> Problem {
        Problem {
            file: file.into(),
            document: Some(self.document),
            item: self.item,
            object: None,
            trouble: trouble.into(),
        }
    }
}
