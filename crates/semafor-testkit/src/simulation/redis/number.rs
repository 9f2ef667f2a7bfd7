//! Numbers as Redis writes and reads them.

/// A number as text. It needs no memory of its own, because most commands of a script have one.
#[derive(Clone, Copy)]
pub struct Text {
    bytes: [u8; LONGEST],
    len: usize,
}

/// Of a double with 17 digits, sign, point and exponent.
const LONGEST: usize = 24;

impl Text {
    fn of(text: &[u8]) -> Self {
        let mut bytes = [0; LONGEST];
        let len = text.len().min(LONGEST);
        bytes[..len].copy_from_slice(&text[..len]);
        Self { bytes, len }
    }

    /// Its characters.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// As C's `%.17g`, which is how Redis 7.0 writes scores, and how it passes numbers of a script to a command.
pub fn write(number: f64) -> Text {
    plain(number).unwrap_or_else(|| Text::of(any(number).as_bytes()))
}

/// Whole numbers, and times in seconds, without the work that other numbers need.
fn plain(number: f64) -> Option<Text> {
    let size = number.abs();
    if size.fract() == 0.0 && size < 1e16 && (size > 0.0 || number.is_sign_positive()) {
        return Some(decimal(number < 0.0, size as u64, 0, 0));
    }
    if !(1.0..1e16).contains(&size) {
        return None;
    }
    let digits = (size as u64).ilog10() + 1;
    let decimals = 17 - digits;
    // The fraction is `rest / 2^bits`, exactly.
    let bits = 52 - (size.to_bits() >> 52).saturating_sub(1_023);
    let rest = (size.fract() * (1u64 << bits) as f64) as u128;
    let scale = 10u64.pow(decimals);
    let (scaled, half) = (rest * u128::from(scale), 1u128 << (bits - 1));
    let (floor, remainder) = ((scaled >> bits) as u64, scaled & ((1u128 << bits) - 1));
    let is_up = remainder > half || remainder == half && floor % 2 == 1;
    let fraction = floor + u64::from(is_up);
    // Another digit before the point would leave one less behind it.
    (fraction < scale).then(|| decimal(number < 0.0, size as u64, fraction, decimals))
}

fn decimal(is_negative: bool, mut whole: u64, mut fraction: u64, mut decimals: u32) -> Text {
    let mut bytes = [0; LONGEST];
    let mut at = LONGEST;
    let mut put = |byte: u8| {
        at -= 1;
        bytes[at] = byte;
    };
    // Without the zeros at the end.
    if fraction == 0 {
        decimals = 0;
    }
    while decimals > 0 && fraction.is_multiple_of(10) {
        fraction /= 10;
        decimals -= 1;
    }
    if decimals > 0 {
        for _ in 0..decimals {
            put(b'0' + (fraction % 10) as u8);
            fraction /= 10;
        }
        put(b'.');
    }
    loop {
        put(b'0' + (whole % 10) as u8);
        whole /= 10;
        if whole == 0 {
            break;
        }
    }
    if is_negative {
        put(b'-');
    }
    bytes.copy_within(at.., 0);
    Text { bytes, len: LONGEST - at }
}

fn any(number: f64) -> String {
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

/// Reads a number of digits alone, with a sign and a point perhaps. C and Rust read those alike: to the nearest double.
pub(super) fn read_plain(text: &[u8]) -> Option<f64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let mut points = 0;
    let is_plain = digits.iter().all(|byte| {
        points += usize::from(*byte == b'.');
        byte.is_ascii_digit() || *byte == b'.'
    });
    (is_plain && points < 2).then(|| str::from_utf8(text).ok()?.parse().ok())?
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
            assert_eq!(write(number).as_bytes(), text.as_bytes(), "{number:?}");
        }
    }

    #[test]
    fn plain_numbers_are_written_as_all_others() {
        let mut state = 1_u64;
        for round in 0..200_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let random = (state >> 11) as f64 / (1u64 << 53) as f64;
            let number = match round % 6 {
                0 => f64::from_bits(state),
                1 => 1_789_000_000.0 + random * 1_000.0,
                2 => (1_789_000_000.0 + random * 1_000.0) * 1e6,
                3 => -random * 100.0,
                4 => (random * 1e9).floor() / 1e3,
                // Just below a power of ten, and halves.
                _ => 10f64.powi((state % 17) as i32) - random.round() / 2.0 - f64::EPSILON,
            };
            assert_eq!(write(number).as_bytes(), any(number).as_bytes(), "{number:?}");
        }
    }
}
