//! TLS that believes in a list of keys and in nothing else.

use super::{HostKey, KnownHosts, PublicKey};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{CryptoProvider, ring as provider, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::sign::CertifiedKey;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, OtherError, PeerIncompatible,
    ServerConfig, SignatureScheme,
};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// The other host proved that it has a key, but we do not know the key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownKey {
    /// What it presented.
    pub presented: PublicKey,
    /// Who it was to be; `None` when it connected to us and could have been anyone in the file.
    pub expected: Option<String>,
    /// Whose key it is, if it is that of another known host.
    pub belongs_to: Option<String>,
    /// Where the key would have to be listed.
    pub file: PathBuf,
}

impl fmt::Display for UnknownKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UnknownKey { presented, expected, belongs_to, file } = self;
        let host = expected.as_deref().unwrap_or("a host");
        write!(f, "{host} presented the key {presented}, ")?;
        if let Some(owner) = belongs_to {
            return write!(f, "which is that of {owner} in {}", file.display());
        }
        let name = expected.as_deref().unwrap_or("NAME");
        let file = file.display();
        write!(f, "which {file} does not list; if you trust it, add the line: {name} = {presented}")
    }
}

impl std::error::Error for UnknownKey {}

/// What the connecting end needs to reach the host called `expected`.
pub(super) fn connector(key: &HostKey, known: &KnownHosts, expected: &str) -> ClientConfig {
    let verifier = Arc::new(Pinned::new(known, Some(expected)));
    let mut config = ClientConfig::builder_with_provider(crypto().into())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("this provider speaks TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(certified(key))));
    // A resumed session would be spared the question of whose key it is, and the file may have changed since.
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    config
}

/// What the accepting end needs to let in any known host.
pub(super) fn acceptor(key: &HostKey, known: &KnownHosts) -> ServerConfig {
    acceptor_with(key, Pinned::new(known, None))
}

/// The same, which lets in whoever has any key and proves it: who that may be is looked at behind the handshake.
pub(super) fn open_acceptor(key: &HostKey, known: &KnownHosts) -> ServerConfig {
    acceptor_with(key, Pinned { lets_in_strangers: true, ..Pinned::new(known, None) })
}

fn acceptor_with(key: &HostKey, pinned: Pinned) -> ServerConfig {
    let mut config = ServerConfig::builder_with_provider(crypto().into())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("this provider speaks TLS 1.3")
        .with_client_cert_verifier(Arc::new(pinned))
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(certified(key))));
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config
}

fn crypto() -> CryptoProvider {
    provider::default_provider()
}

fn certified(key: &HostKey) -> Arc<CertifiedKey> {
    let signing =
        provider::sign::any_eddsa_type(&key.to_pkcs8()).expect("we wrote this form of the key ourselves");
    Arc::new(CertifiedKey::new(vec![key.public().to_spki().into()], signing))
}

/// Decides whether the key that a peer presents is one that it may have. That the peer has the secret half is
/// proved by its signature over the handshake, which is checked as well, by the TLS library.
#[derive(Debug)]
struct Pinned {
    known: KnownHosts,
    expected: Option<String>,
    lets_in_strangers: bool,
}

impl Pinned {
    fn new(known: &KnownHosts, expected: Option<&str>) -> Pinned {
        Pinned { known: known.clone(), expected: expected.map(str::to_owned), lets_in_strangers: false }
    }

    fn check(&self, presented: &CertificateDer<'_>) -> Result<(), rustls::Error> {
        let Some(presented) = PublicKey::from_spki(presented) else {
            return Err(CertificateError::BadEncoding.into());
        };
        let owner = self.known.name_of(&presented);
        if self.lets_in_strangers {
            return Ok(());
        }
        if owner.is_some() && (self.expected.is_none() || self.expected.as_deref() == owner) {
            return Ok(());
        }
        let unknown = UnknownKey {
            presented,
            expected: self.expected.clone(),
            belongs_to: owner.map(str::to_owned),
            file: self.known.file().to_owned(),
        };
        Err(CertificateError::Other(OtherError(Arc::new(unknown))).into())
    }

    fn check_signature(
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let key = SubjectPublicKeyInfoDer::from(key.as_ref());
        let algorithms = crypto().signature_verification_algorithms;
        verify_tls13_signature_with_raw_key(message, &key, signature, &algorithms)
    }
}

/// The key in an error that `Pinned` made, after it went through the TLS library.
pub(super) fn unknown_key(error: &rustls::Error) -> Option<UnknownKey> {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(inner))) => {
            inner.downcast_ref::<UnknownKey>().cloned()
        }
        _ => None,
    }
}

fn never() -> rustls::Error {
    PeerIncompatible::Tls12NotOffered.into()
}

/// What is the same whichever end is checked: a signature by a raw key, in TLS 1.3.
macro_rules! proved_by_raw_key {
    () => {
        fn verify_tls12_signature(
            &self,
            _message: &[u8],
            _key: &CertificateDer<'_>,
            _signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            Err(never())
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            key: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            Pinned::check_signature(message, key, signature)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    };
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        presented: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.check(presented).map(|()| ServerCertVerified::assertion())
    }

    proved_by_raw_key!();
}

impl ClientCertVerifier for Pinned {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        presented: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.check(presented).map(|()| ClientCertVerified::assertion())
    }

    proved_by_raw_key!();
}
