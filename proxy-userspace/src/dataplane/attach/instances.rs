//! More instances of a program: at one hook each can be attached only once.

use std::collections::HashMap;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use aya::Ebpf;
use aya::programs::SchedClassifier;

use super::AttachError;

/// Programs that are loaded when they are first needed, which takes the kernel as long as it takes
/// to verify them.
#[derive(Debug, Default)]
pub(super) struct Instances(HashMap<&'static str, Vec<OwnedFd>>);

impl Instances {
    /// Some instances of a program that is not loaded otherwise.
    pub(super) fn of<const N: usize>(
        &mut self,
        ebpf: &mut Ebpf,
        name: &'static str,
    ) -> Result<[BorrowedFd<'_>; N], AttachError> {
        let all = self.0.entry(name).or_default();
        while all.len() < N {
            all.push(load(ebpf, name)?);
        }
        let some = all
            .iter()
            .take(N)
            .map(|one| one.as_fd())
            .collect::<Vec<_>>();
        <[_; N]>::try_from(some).map_err(|_few| AttachError::NoProgram(name))
    }
}

fn load(ebpf: &mut Ebpf, name: &'static str) -> Result<OwnedFd, AttachError> {
    let refused = |source| AttachError::Program {
        program: name,
        source,
    };
    let program = classifier(ebpf, name)?;
    program.load().map_err(refused)?;
    let instance = program.fd().map_err(refused)?.as_fd().try_clone_to_owned();
    // It lives on by its descriptor, and can be loaded once more.
    program.unload().map_err(refused)?;
    instance.map_err(|error| refused(aya::programs::ProgramError::IOError(error)))
}

/// A program that is loaded with the object.
pub(super) fn loaded<'a>(
    ebpf: &'a mut Ebpf,
    name: &'static str,
) -> Result<BorrowedFd<'a>, AttachError> {
    let program = classifier(ebpf, name)?.fd();
    let program = program.map_err(|source| AttachError::Program {
        program: name,
        source,
    })?;
    Ok(program.as_fd())
}

/// A program of the object.
fn classifier<'a>(
    ebpf: &'a mut Ebpf,
    name: &'static str,
) -> Result<&'a mut SchedClassifier, AttachError> {
    let found = ebpf
        .program_mut(name)
        .and_then(|found| found.try_into().ok());
    found.ok_or(AttachError::NoProgram(name))
}
