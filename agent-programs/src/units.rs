// SPDX-License-Identifier: Apache-2.0
//! Sizes, rates and times on the command line.

fn split(text: &str) -> Result<(f64, &str), String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: f64 = number.parse().map_err(|_| format!("'{text}' does not begin with a number"))?;
    Ok((number, unit.trim()))
}

fn whole(value: f64, text: &str) -> Result<u64, String> {
    if (0.5..1e18).contains(&value) {
        Ok(value.round() as u64)
    } else {
        Err(format!("'{text}' is out of range"))
    }
}

/// Bytes: `64K`, `16M`, `1G` are powers of 1024, as in nccl-tests.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text)?;
    let factor = match unit.trim_end_matches('B').trim_end_matches('i') {
        "" => 0,
        "k" | "K" => 1,
        "m" | "M" => 2,
        "g" | "G" => 3,
        _ => return Err(format!("unknown unit '{unit}' in '{text}' (valid: K, M, G, powers of 1024)")),
    };
    whole(number * 1024_f64.powi(factor), text)
}

/// Bit/s: `100M`, `10G`, `25Gbps` are powers of 1000, as in iperf3.
pub(crate) fn rate(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text)?;
    let factor = match unit.trim_end_matches("bps").trim_end_matches("bit/s").trim_end_matches("bit") {
        "" => 1.0,
        "k" | "K" => 1e3,
        "m" | "M" => 1e6,
        "g" | "G" => 1e9,
        "t" | "T" => 1e12,
        _ => {
            return Err(format!(
                "unknown unit '{unit}' in '{text}' (valid: K, M, G, T, powers of 1000, with or without bps)"
            ));
        }
    };
    whole(number * factor, text)
}

/// Nanoseconds: `25us`, `10ms`, `60s`.
pub(crate) fn time_ns(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text)?;
    let factor = match unit {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" | "" => 1e9,
        _ => return Err(format!("unknown unit '{unit}' in '{text}' (valid: ns, us, ms, s)")),
    };
    whole(number * factor, text)
}

/// `1.25 MiB`.
pub(crate) fn bytes_text(bytes: u64) -> String {
    let (value, unit) = match bytes {
        _ if bytes >= 1 << 30 => (bytes as f64 / f64::from(1 << 30), "GiB"),
        _ if bytes >= 1 << 20 => (bytes as f64 / f64::from(1 << 20), "MiB"),
        _ => (bytes as f64 / 1024.0, "KiB"),
    };
    format!("{value:.2} {unit}")
}

/// `1.25 Gbit/s`.
pub(crate) fn rate_text(bps: f64) -> String {
    let (value, unit) = match bps {
        _ if bps >= 1e9 => (bps / 1e9, "G"),
        _ if bps >= 1e6 => (bps / 1e6, "M"),
        _ => (bps / 1e3, "k"),
    };
    format!("{value:.2} {unit}bit/s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024_and_rates_of_1000() {
        assert_eq!(bytes("64K"), Ok(65_536));
        assert_eq!(bytes("1.5MiB"), Ok(1_572_864));
        assert_eq!(rate("100M"), Ok(100_000_000));
        assert_eq!(rate("2.5Gbps"), Ok(2_500_000_000));
        assert_eq!(time_ns("25us"), Ok(25_000));
        assert_eq!(time_ns("60s"), Ok(60_000_000_000));
    }

    #[test]
    fn errors_name_the_text_and_the_valid_units() {
        assert!(bytes("4Q").is_err_and(|e| e.contains("'4Q'") && e.contains("K, M, G")));
        assert!(rate("fast").is_err_and(|e| e.contains("fast")));
        assert!(rate("0").is_err());
        assert!(bytes("99999999999999999999").is_err());
    }
}
