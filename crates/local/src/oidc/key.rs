//! The key that signs tokens, and how others verify them.
//!
//! *ring* signs but makes no RSA keys, so the `rsa` crate makes the key, once per database, and does nothing
//! else: its known timing leak concerns decryption and signing.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::rsa::PublicKeyComponents;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use rsa::RsaPrivateKey;
use rsa::pkcs1::EncodeRsaPrivateKey;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

/// As the hosted service's.
const BITS: usize = 2048;

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeyProblem {
    #[error("cannot make a key for OIDC tokens: {0}")]
    Make(String),
    #[error("the key for OIDC tokens cannot be read: {0}")]
    Read(String),
    #[error("cannot sign the OIDC token")]
    Sign,
}

/// The key.
pub(crate) struct SigningKey(RsaKeyPair);

impl SigningKey {
    /// Makes a new key, in the form that [`Self::read`] takes. It takes a while.
    pub(crate) fn make() -> Result<Vec<u8>, KeyProblem> {
        let key = RsaPrivateKey::new(&mut rsa::rand_core::OsRng, BITS)
            .map_err(|error| KeyProblem::Make(error.to_string()))?;
        let der = key.to_pkcs1_der().map_err(|error| KeyProblem::Make(error.to_string()))?;
        Ok(der.as_bytes().to_vec())
    }

    /// Reads a key that was kept.
    pub(crate) fn read(der: &[u8]) -> Result<Self, KeyProblem> {
        RsaKeyPair::from_der(der).map(Self).map_err(|error| KeyProblem::Read(error.to_string()))
    }

    /// The key's name: the digest of its public half.
    fn id(&self) -> String {
        URL_SAFE_NO_PAD.encode(Sha256::digest(self.0.public().as_ref()))
    }

    /// A token with these claims.
    pub(crate) fn sign(&self, claims: &Map<String, Value>) -> Result<String, KeyProblem> {
        let header = json!({"typ": "JWT", "alg": "RS256", "kid": self.id()});
        let encode = |value: String| URL_SAFE_NO_PAD.encode(value);
        let message =
            format!("{}.{}", encode(header.to_string()), encode(Value::Object(claims.clone()).to_string()));
        let mut signature = vec![0; self.0.public().modulus_len()];
        self.0
            .sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), message.as_bytes(), &mut signature)
            .map_err(|_| KeyProblem::Sign)?;
        Ok(format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    /// The public half, as others fetch it.
    pub(crate) fn published(&self) -> Value {
        let PublicKeyComponents::<Vec<u8>> { n, e } = self.0.public().into();
        json!({"keys": [{
            "kty": "RSA", "use": "sig", "alg": "RS256", "kid": self.id(),
            "n": URL_SAFE_NO_PAD.encode(n), "e": URL_SAFE_NO_PAD.encode(e),
        }]})
    }
}
