//! The socket in the file system.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen};
use thiserror::Error;

/// Why the control socket cannot be had.
#[derive(Debug, Error)]
pub enum BindError {
    /// Another process answers there.
    #[error("another process answers on the control socket {}; choose another (--control-socket)", .0.display())]
    InUse(PathBuf),
    /// Something else has the name.
    #[error("{} is there and is no socket; choose another (--control-socket)", .0.display())]
    NotASocket(PathBuf),
    /// The socket cannot be made.
    #[error("cannot make the control socket {}", path.display())]
    Refused {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// A listening socket that only its owner reaches. Its file goes when it is dropped, unless another
/// has taken its place.
#[derive(Debug)]
pub struct ControlSocket {
    listener: tokio::net::UnixListener,
    path: PathBuf,
    /// Device and number of the file.
    file: (u64, u64),
}

impl ControlSocket {
    /// Listens at `path`. What a process left that is no more is replaced.
    pub fn bind(path: &Path) -> Result<Self, BindError> {
        match fs::symlink_metadata(path) {
            Ok(data) if !is_socket(&data) => return Err(BindError::NotASocket(path.into())),
            Ok(_) if UnixStream::connect(path).is_ok() => {
                return Err(BindError::InUse(path.into()));
            }
            _ => {}
        }
        let refused = |source| BindError::Refused {
            path: path.into(),
            source,
        };
        let listener = bind_at(path).map_err(refused)?;
        let data = fs::symlink_metadata(path).map_err(refused)?;
        Ok(Self {
            listener: tokio::net::UnixListener::from_std(listener).map_err(refused)?,
            path: path.into(),
            file: (data.dev(), data.ino()),
        })
    }

    /// The next connection.
    pub(super) async fn accept(&self) -> io::Result<tokio::net::UnixStream> {
        self.listener.accept().await.map(|(stream, _)| stream)
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        let data = fs::symlink_metadata(&self.path);
        if data.is_ok_and(|data| (data.dev(), data.ino()) == self.file) {
            fs::remove_file(&self.path).ok();
        }
    }
}

/// The name leads to the socket only once nobody but the owner can connect to it.
fn bind_at(path: &Path) -> io::Result<UnixListener> {
    if let Some(directory) = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
    {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(directory)?;
    }
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".{}", std::process::id()));
    let draft = PathBuf::from(draft);
    fs::remove_file(&draft).ok();
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    bind(&socket, &SocketAddrUnix::new(&*draft)?)?;
    let ready = fs::set_permissions(&draft, fs::Permissions::from_mode(0o600))
        .and_then(|()| Ok(listen(&socket, BACKLOG)?))
        .and_then(|()| fs::rename(&draft, path));
    if let Err(error) = ready {
        fs::remove_file(&draft).ok();
        return Err(error);
    }
    Ok(socket.into())
}

fn is_socket(data: &fs::Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    data.file_type().is_socket()
}

const BACKLOG: i32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_live_socket_is_refused_and_a_dead_one_replaced() {
        let dir = std::env::temp_dir().join(format!("kube-lottery-socket-{}", std::process::id()));
        let path = dir.join("agent.sock");
        let first = ControlSocket::bind(&path).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(0o600, mode & 0o777);
        assert!(matches!(
            ControlSocket::bind(&path),
            Err(BindError::InUse(_))
        ));
        drop(first);
        assert!(!path.exists());

        // As a process leaves it that is killed.
        drop(UnixListener::bind(&path).unwrap());
        let second = ControlSocket::bind(&path).unwrap();
        // Another has taken its place: that one stays.
        fs::remove_file(&path).unwrap();
        let third = ControlSocket::bind(&path).unwrap();
        drop(second);
        assert!(path.exists());
        drop(third);

        fs::write(&path, "").unwrap();
        assert!(matches!(
            ControlSocket::bind(&path),
            Err(BindError::NotASocket(_))
        ));
        fs::remove_dir_all(&dir).unwrap();
    }
}
