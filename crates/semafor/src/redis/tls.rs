//! Connections that nobody else can read.

use std::path::Path;

use redis::{Client, ConnectionInfo, ErrorKind, RedisError, TlsCertificates};
use rustls::crypto::{CryptoProvider, ring};

/// Trusts `ca`, in PEM, or else the authorities of the system.
pub(super) fn client(info: &ConnectionInfo, ca: Option<&Path>) -> Result<Client, RedisError> {
    choose_provider();
    let Some(path) = ca else { return Client::open(info.clone()) };
    let unusable = |complaint: String| {
        let message = format!("the certificate {} can't be used: {complaint}", path.display());
        RedisError::from((ErrorKind::InvalidClientConfig, "ca", message))
    };
    let pem = std::fs::read(path).map_err(|error| unusable(error.to_string()))?;
    if !pem.windows(BEGIN.len()).any(|text| text == BEGIN) {
        return Err(unusable("there is none in it, in PEM".into()));
    }
    let certificates = TlsCertificates { client_tls: None, root_cert: Some(pem) };
    Client::build_with_tls(info.clone(), certificates).map_err(|error| unusable(error.to_string()))
}

const BEGIN: &[u8] = b"-----BEGIN CERTIFICATE-----";

/// The client takes the cryptography of the whole process, and panics if nobody has chosen one. So it is chosen as late as
/// this, and only if nobody did. Ring, because it looks at the processor when it is used, not when the process starts.
fn choose_provider() {
    if CryptoProvider::get_default().is_none() {
        // Somebody was quicker: theirs will do.
        let _ = ring::default_provider().install_default();
    }
}
