// SPDX-License-Identifier: Apache-2.0
//! What is made of a job's key: proofs that one knows it, and the packets' key of one run.
#![forbid(unsafe_code)]

use hmac::{Hmac, Mac};
use sha2::Sha256;
use trimwire_encoder::SealKey;

/// HKDF's `info` of each use.
const PROOF: &[u8] = b"trimwire rendezvous 2 proof";
const PACKETS: &[u8] = b"trimwire rendezvous 1 packets";
/// Bytes of a proof, and of a nonce.
pub(super) const PROOF_LEN: usize = 32;

/// Drawn anew by each side of each connection.
pub(super) type Nonce = [u8; PROOF_LEN];

/// Who proves: neither can send the other's proof back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Server,
    Client,
}

/// The key and the nonces of one connection.
#[derive(Debug)]
pub(super) struct Prover {
    pub(super) key: SealKey,
    pub(super) client: Nonce,
    pub(super) server: Nonce,
}

impl Prover {
    fn mac(&self, side: Side, text: &[u8]) -> Hmac<Sha256> {
        let derived = self.key.derive(&[], PROOF);
        let mut mac =
            Hmac::<Sha256>::new_from_slice(derived.as_ref()).expect("HMAC takes keys of any length");
        mac.update(match side {
            Side::Server => b"server",
            Side::Client => b"client",
        });
        mac.update(&self.client);
        mac.update(&self.server);
        mac.update(text);
        mac
    }

    /// Shows that a side of this connection knows the key, and that `text` is what it said.
    pub(super) fn prove(&self, side: Side, text: &[u8]) -> [u8; PROOF_LEN] {
        self.mac(side, text).finalize().into_bytes().into()
    }

    /// Whether it does, in a time that tells nothing.
    pub(super) fn is_proven(&self, side: Side, text: &[u8], proof: &[u8]) -> bool {
        self.mac(side, text).verify_slice(proof).is_ok()
    }
}

/// The key of the packets of one run. Every meeting has another one, because numbers of messages repeat.
pub(super) fn packets_key(key: &SealKey, fresh: &[u8; 32]) -> SealKey {
    SealKey::from_bytes(key.derive(fresh, PACKETS).as_ref()).expect("32 bytes are a job's key")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prover(key: u8, client: u8, server: u8) -> Prover {
        let key = SealKey::from_bytes(&[key; 32]).expect("a key");
        Prover { key, client: [client; 32], server: [server; 32] }
    }

    /// Made by Python's `hmac`, with HKDF written out after RFC 5869 §2.
    #[test]
    fn proofs_and_keys_are_hmac_and_hkdf_as_others_compute_them() {
        let hex = |bytes: &[u8]| bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
        let prover = prover(7, 1, 2);
        assert_eq!(
            hex(&prover.prove(Side::Client, b"text")),
            "81086e1a0178c13141fea2b5f4ea6f7f41464b7ee251c65822149e78f60a8593"
        );
        assert_eq!(
            hex(prover.key.derive(&[5; 32], PACKETS).as_ref()),
            "b1eccfd1d562c4297e32186b377e0039355d18c499038be5b8c0733dafdb6d7c"
        );
    }

    #[test]
    fn a_proof_holds_for_its_key_side_connection_and_text_only() {
        let proof = prover(7, 1, 2).prove(Side::Client, b"text");
        assert!(prover(7, 1, 2).is_proven(Side::Client, b"text", &proof));
        assert!(!prover(7, 1, 2).is_proven(Side::Server, b"text", &proof));
        assert!(!prover(7, 1, 2).is_proven(Side::Client, b"texT", &proof));
        assert!(!prover(7, 3, 2).is_proven(Side::Client, b"text", &proof));
        assert!(!prover(7, 1, 3).is_proven(Side::Client, b"text", &proof));
        assert!(!prover(8, 1, 2).is_proven(Side::Client, b"text", &proof));
        assert!(!prover(7, 1, 2).is_proven(Side::Client, b"text", &proof[..31]));
    }
}
