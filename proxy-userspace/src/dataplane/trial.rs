//! Runs a loaded program on a packet, as the kernel's test run does it: nothing is sent, and the
//! maps are the real ones.

use std::io;

use aya::programs::{SchedClassifier, TestRun as _, TestRunOptions};

use super::attach::Programs;

/// Size of a `struct __sk_buff`, and the offset of its field `mark`, in bytes.
const CONTEXT: usize = 192;
const MARK: usize = 8;

/// How much a packet may grow.
const ROOM: usize = 256;

/// What a program made of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trial {
    /// What it returned.
    pub action: i32,
    /// The packet.
    pub packet: Vec<u8>,
    /// Its mark.
    pub mark: u32,
}

impl Programs {
    /// What a program makes of a packet, an Ethernet frame, that came by the loopback device.
    pub fn trial(&self, program: &str, packet: &[u8], mark: u32) -> io::Result<Trial> {
        let found = self
            .ebpf()
            .program(program)
            .ok_or(io::ErrorKind::NotFound)?;
        let classifier: &SchedClassifier = found.try_into().map_err(io::Error::other)?;
        run(classifier, packet, mark)
    }
}

/// What a program makes of a packet that came by the loopback device.
pub(super) fn run(classifier: &SchedClassifier, packet: &[u8], mark: u32) -> io::Result<Trial> {
    let mut context = [0; CONTEXT];
    write_mark(&mut context, mark);
    let mut context_after = [0; CONTEXT];
    let mut after = vec![0; packet.len() + ROOM];
    let mut options = TestRunOptions::new();
    options.data_in = Some(packet);
    options.data_out = Some(&mut after);
    options.ctx_in = Some(&context);
    options.ctx_out = Some(&mut context_after);
    let result = classifier.test_run(options).map_err(io::Error::other)?;
    after.truncate(usize::try_from(result.data_size_out).unwrap_or_default());
    Ok(Trial {
        action: result.return_value.cast_signed(),
        packet: after,
        mark: read_mark(&context_after),
    })
}

fn write_mark(context: &mut [u8; CONTEXT], mark: u32) {
    if let Some(field) = context.get_mut(MARK..MARK + size_of::<u32>()) {
        field.copy_from_slice(&mark.to_ne_bytes());
    }
}

fn read_mark(context: &[u8; CONTEXT]) -> u32 {
    let field = context.get(MARK..MARK + size_of::<u32>());
    let field = field.and_then(|field| field.try_into().ok());
    field.map(u32::from_ne_bytes).unwrap_or_default()
}
