//! What a kernel unpacks as its first root directory: a cpio archive, in the form called newc.

use std::collections::BTreeSet;

/// An archive in the making.
#[derive(Clone, Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
    directories: BTreeSet<String>,
    files: BTreeSet<String>,
}

const DIRECTORY: u32 = 0o04_0755;
const PROGRAM: u32 = 0o10_0755;
/// Entries and what is in them begin at multiples of this.
const ALIGNMENT: usize = 4;

impl Archive {
    /// Adds an executable file and the directories above it; `path` is absolute.
    pub(super) fn file(&mut self, path: &str, content: &[u8]) {
        self.parents(path);
        self.files.insert(path.to_owned());
        self.entry(path, PROGRAM, content);
    }

    /// Adds an empty directory and those above it.
    pub(super) fn directory(&mut self, path: &str) {
        if !path.is_empty() && self.directories.insert(path.to_owned()) {
            self.parents(path);
            self.entry(path, DIRECTORY, &[]);
        }
    }

    /// Whether a file was added.
    pub(super) fn has(&self, path: &str) -> bool {
        self.files.contains(path)
    }

    /// The archive as the kernel reads it.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry("/TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn parents(&mut self, path: &str) {
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.directory(parent);
        }
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        let name = path.trim_start_matches('/');
        self.entries += 1;
        let fields = [
            self.entries, // inode
            mode,
            0, // owner
            0, // group
            1, // links
            0, // time
            content.len() as u32,
            0, // device, major and minor
            0,
            0, // device that it stands for, major and minor
            0,
            name.len() as u32 + 1,
            0, // checksum
        ];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        let length = self.bytes.len().next_multiple_of(ALIGNMENT);
        self.bytes.resize(length, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    fn example() -> Vec<u8> {
        let mut archive = Archive::default();
        archive.file("/a/b/one", b"12345");
        archive.file("/a/two", b"");
        archive.directory("/c");
        archive.finish()
    }

    #[test]
    fn directories_come_once_and_before_what_is_in_them() {
        let bytes = example();
        let text = String::from_utf8_lossy(&bytes);
        let place = |name: &str| text.find(&format!("{name}\0")).expect(name);
        assert!(place("a") < place("a/b") && place("a/b") < place("a/b/one"));
        assert_eq!(1, text.matches("a\0").count());
        assert_eq!(0, bytes.len() % ALIGNMENT);
    }

    #[test]
    fn another_program_reads_it() {
        let reader = [("cpio", &[][..]), ("busybox", &["cpio"][..])]
            .into_iter()
            .find(|(program, _)| crate::process::find(program).is_some());
        let Some((program, arguments)) = reader else {
            return;
        };
        let mut child = Command::new(program)
            .args(arguments)
            .arg("-t")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("starts");
        let mut input = child.stdin.take().expect("piped");
        input.write_all(&example()).expect("takes it");
        drop(input);
        let output = child.wait_with_output().expect("ends");
        let names = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!("a\na/b\na/b/one\na/two\nc\n", names);
    }
}
