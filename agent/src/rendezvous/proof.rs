// SPDX-License-Identifier: Apache-2.0
//! What is made of a job's key: proofs that one knows it, and the packets' key of one run.
#![forbid(unsafe_code)]

use hmac::{Hmac, Mac};
use sha2::Sha256;
use trimwire_encoder::SealKey;

/// HKDF's `info` of each use.
const PROOF: &[u8] = b"trimwire rendezvous 1 proof";
const PACKETS: &[u8] = b"trimwire rendezvous 1 packets";

/// Bytes of a proof, and of what it is bound to.
pub(super) const PROOF_LEN: usize = 32;

/// Who proves: neither can send the other's proof back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Server,
    Client,
}

fn mac(key: &SealKey, side: Side, binding: &[u8; PROOF_LEN]) -> Hmac<Sha256> {
    let derived = key.derive(&[], PROOF);
    let mut mac = Hmac::<Sha256>::new_from_slice(derived.as_ref()).expect("HMAC takes keys of any length");
    mac.update(match side {
        Side::Server => b"server",
        Side::Client => b"client",
    });
    mac.update(binding);
    mac
}

/// Shows that a side of a connection knows the key. `binding` is the connection's own (RFC 9266): whoever sits between two connections has two of them, and
/// nothing that fits the other.
pub(super) fn prove(key: &SealKey, side: Side, binding: &[u8; PROOF_LEN]) -> [u8; PROOF_LEN] {
    mac(key, side, binding).finalize().into_bytes().into()
}

/// Whether it does, in a time that tells nothing.
pub(super) fn is_proven(key: &SealKey, side: Side, binding: &[u8; PROOF_LEN], proof: &[u8]) -> bool {
    mac(key, side, binding).verify_slice(proof).is_ok()
}

/// The key of the packets of one run: another one at every meeting, so that numbers of messages that come again do so under another key.
pub(super) fn packets_key(key: &SealKey, fresh: &[u8; 32]) -> SealKey {
    SealKey::from_bytes(key.derive(fresh, PACKETS).as_ref()).expect("32 bytes are a job's key")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made by Python's `hmac`, with HKDF written out after RFC 5869 §2.
    #[test]
    fn proofs_and_keys_are_hmac_and_hkdf_as_others_compute_them() {
        let hex = |bytes: &[u8]| bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
        let key = SealKey::from_bytes(&[7; 32]).expect("a key");
        assert_eq!(
            hex(&prove(&key, Side::Client, &[1; 32])),
            "8820d322627dfb6c5386463d500ae0259045f36d44123730cdf8cddf33c16322"
        );
        assert_eq!(
            hex(key.derive(&[5; 32], PACKETS).as_ref()),
            "b1eccfd1d562c4297e32186b377e0039355d18c499038be5b8c0733dafdb6d7c"
        );
    }

    #[test]
    fn a_proof_holds_for_its_key_side_and_connection_only() {
        let [key, other] = [[7; 32], [8; 32]].map(|bytes| SealKey::from_bytes(&bytes).expect("a key"));
        let proof = prove(&key, Side::Client, &[1; 32]);
        assert!(is_proven(&key, Side::Client, &[1; 32], &proof));
        assert!(!is_proven(&key, Side::Server, &[1; 32], &proof));
        assert!(!is_proven(&key, Side::Client, &[2; 32], &proof));
        assert!(!is_proven(&other, Side::Client, &[1; 32], &proof));
        assert!(!is_proven(&key, Side::Client, &[1; 32], &proof[..31]));
    }
}
