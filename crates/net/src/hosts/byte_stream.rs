//! Bytes instead of messages, between two hosts that have proved who they are.

use super::SecureStream;
use super::secure_stream::{StreamError, read_records, write_records};
use rustls::Connection;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// A link to a program on another host, once both have proved who they are. Blocking, for one thread.
///
/// No read and no write waits longer than was agreed. One that would fails with [`io::ErrorKind::TimedOut`] and can be tried again:
/// nothing of it has been done, for what came of a record is kept, and bytes are taken only when all before them are out. Dropping it says
/// farewell, without which the other end reads an error, and not an end.
#[derive(Debug)]
pub struct ByteStream {
    session: Connection,
    socket: TcpStream,
    patience: Duration,
}

impl ByteStream {
    /// From now on no messages are exchanged. Both ends must do so at the same point.
    pub fn new(stream: SecureStream, patience: Duration) -> io::Result<ByteStream> {
        let SecureStream { session, socket, .. } = stream;
        let mut stream = ByteStream { session, socket, patience };
        stream.set_patience(patience)?;
        Ok(stream)
    }

    /// From now on no read and no write waits longer than this.
    pub fn set_patience(&mut self, patience: Duration) -> io::Result<()> {
        self.patience = patience;
        self.socket.set_write_timeout(Some(patience))
    }
}

impl Read for ByteStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let deadline = Instant::now() + self.patience;
        loop {
            match self.session.reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Err(failure(StreamError::Truncated));
                }
                read => return read,
            }
            // After the end of the records, too: the session then tells a farewell from a cut.
            read_records(&mut self.session, &mut self.socket, Some(deadline)).map_err(failure)?;
        }
    }
}

impl Write for ByteStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.flush()?;
        let taken = self.session.writer().write(bytes)?;
        // What was taken is on its way: what is wrong with that, the next call says.
        let _ = self.flush();
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        write_records(&mut self.session, &mut self.socket).map_err(failure)
    }
}

impl Drop for ByteStream {
    fn drop(&mut self) {
        self.session.send_close_notify();
        let _ = self.flush();
    }
}

fn failure(error: StreamError) -> io::Error {
    match error {
        StreamError::TimedOut => io::ErrorKind::TimedOut.into(),
        StreamError::Io(error) => error,
        StreamError::Truncated => io::Error::new(io::ErrorKind::UnexpectedEof, error),
        error => io::Error::new(io::ErrorKind::InvalidData, error),
    }
}
