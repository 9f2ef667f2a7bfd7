//! Encrypted connections.

use std::path::Path;

use redis::{Client, ConnectionInfo, ErrorKind, RedisError, TlsCertificates};
use rustls::crypto::{CryptoProvider, ring};

/// Trusts the certificates in the file `ca`, in PEM, or else those of the system.
pub(super) fn client(info: &ConnectionInfo, ca: Option<&Path>) -> Result<Client, RedisError> {
    choose_provider();
    let Some(path) = ca else { return Client::open(info.clone()) };
    let unusable = |complaint: String| {
        let message = format!("the certificate {} can't be used: {complaint}", path.display());
        RedisError::from((ErrorKind::InvalidClientConfig, "ca", message))
    };
    let pem = std::fs::read(path).map_err(|error| unusable(error.to_string()))?;
    if !pem.windows(BEGIN.len()).any(|text| text == BEGIN) {
        return Err(unusable("the file has no certificate in PEM".into()));
    }
    let certificates = TlsCertificates { client_tls: None, root_cert: Some(pem) };
    Client::build_with_tls(info.clone(), certificates).map_err(|error| unusable(error.to_string()))
}

const BEGIN: &[u8] = b"-----BEGIN CERTIFICATE-----";

/// The Redis client uses the default crypto provider of the process, and panics without one. So this installs one as late
/// as possible, and only if there is none. Ring, because it detects the processor when it is used, not when the process
/// starts.
fn choose_provider() {
    if CryptoProvider::get_default().is_none() {
        // Fails if another thread was faster: then that provider is used.
        let _ = ring::default_provider().install_default();
    }
}
