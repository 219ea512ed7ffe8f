// SPDX-License-Identifier: Apache-2.0
//! Rates and sizes with their units, exact.

/// A rate in bit/s, above 0.
///
/// # Errors
/// What was expected.
pub fn rate(text: &str) -> Result<u64, String> {
    let units = [("bps", 1), ("kbps", 1_000), ("Mbps", 1_000_000), ("Gbps", 1_000_000_000)];
    match scaled(text, &units) {
        Some(rate) if rate > 0 => Ok(rate),
        _ => Err("expected a rate above 0 in bps, kbps, Mbps or Gbps, such as 10Gbps".to_owned()),
    }
}

/// Bytes, above 0.
///
/// # Errors
/// What was expected.
pub fn size(text: &str) -> Result<u64, String> {
    let units = [
        ("", 1),
        ("B", 1),
        ("kB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
    ];
    match scaled(text, &units) {
        Some(size) if size > 0 => Ok(size),
        _ => {
            Err("expected bytes above 0, plain or in kB, MB, GB, KiB, MiB or GiB, such as 512KiB".to_owned())
        }
    }
}

/// A decimal number times its unit, exact; `None` for anything else, fractions of the base unit
/// among them.
fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let at = text.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let (_, scale) = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit.trim_start()))?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || fraction.is_empty() {
        return None;
    }
    let tenths = 10u64.checked_pow(fraction.len() as u32)?;
    let digits = whole.parse::<u64>().ok()?.checked_mul(tenths)?.checked_add(fraction.parse().ok()?)?;
    let product = u128::from(digits) * u128::from(*scale);
    (product % u128::from(tenths) == 0).then(|| u64::try_from(product / u128::from(tenths)).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_units_are_exact() {
        assert_eq!(rate("10Gbps"), Ok(10_000_000_000));
        assert_eq!(rate("1.25 Gbps"), Ok(1_250_000_000));
        assert_eq!(rate("9600bps"), Ok(9600));
        assert_eq!(size("1.5KiB"), Ok(1536));
        assert_eq!(size("65536"), Ok(65536));
        for bad in ["", "Gbps", "1..5Gbps", ".5Gbps", "-1Gbps", "99999999999999999999Gbps", "1e9bps"] {
            assert!(rate(bad).is_err(), "{bad}");
        }
    }
}
