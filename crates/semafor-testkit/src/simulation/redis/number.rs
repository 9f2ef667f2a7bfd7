//! Numbers as Redis writes and reads them.

/// As C's `%.17g`, which is how Redis 7.0 writes scores, and how it passes numbers of a script to a command.
pub fn write(number: f64) -> String {
    if number.is_nan() {
        return "nan".into();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf".into() } else { "-inf".into() };
    }
    if number == 0.0 {
        return if number.is_sign_negative() { "-0".into() } else { "0".into() };
    }
    let scientific = format!("{number:.16e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..17).contains(&exponent) {
        let decimals = usize::try_from(16 - exponent).unwrap_or_default();
        return trim(&format!("{number:.decimals$}")).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trim(mantissa), exponent.abs())
}

/// Without the zeros at the end of its fraction.
fn trim(number: &str) -> &str {
    if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number }
}

/// Reads a score.
pub fn read(text: &[u8]) -> Option<f64> {
    let text = str::from_utf8(text).ok()?;
    match text {
        "inf" | "+inf" => Some(f64::INFINITY),
        "-inf" => Some(f64::NEG_INFINITY),
        _ => text.parse::<f64>().ok().filter(|number| !number.is_nan()),
    }
}

/// Reads a whole number.
pub fn read_whole(text: &[u8]) -> Option<i64> {
    str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_c_does() {
        let written = [
            (1.0, "1"),
            (0.5, "0.5"),
            (0.1, "0.10000000000000001"),
            (-2.25, "-2.25"),
            (1_789_000_000.123_456, "1789000000.123456"),
            (100_000_000_000_000_000.0, "1e+17"),
            (12_345_678_901_234_567.0, "12345678901234568"),
            (0.000_012_5, "1.2500000000000001e-05"),
            (0.000_125, "0.000125"),
            (3e300, "3.0000000000000002e+300"),
        ];
        for (number, text) in written {
            assert_eq!(write(number), text, "{number:?}");
        }
    }
}
