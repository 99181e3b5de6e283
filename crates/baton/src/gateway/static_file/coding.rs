//! Which of a file's codings a client likes best: RFC 9110, section 12.5.3.

use baton_server::http1::RequestHead;

use super::headers::lines;

/// A content coding that a file may lie beside itself in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    Brotli,
    Gzip,
}

impl Coding {
    /// The better ones first: they win where the client has no preference.
    pub const ALL: [Self; 2] = [Self::Brotli, Self::Gzip];

    /// As in Content-Encoding.
    pub fn name(self) -> &'static str {
        match self {
            Self::Brotli => "br",
            Self::Gzip => "gzip",
        }
    }

    /// Of the file's name.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Brotli => "br",
            Self::Gzip => "gz",
        }
    }
}

/// Thousandths, as a qvalue has three digits at most.
type Weight = u16;
const WEIGHT_MAX: Weight = 1000;

/// `None`: as it is, without a coding.
pub fn choose(head: &RequestHead<'_>, available: impl Iterator<Item = Coding>) -> Option<Coding> {
    let accepted = Accepted::of(head);
    let mut best: Option<(Coding, Weight)> = None;
    for coding in available {
        let weight = accepted.weight(coding);
        // Without a word about identity it is what remains when nothing else is wanted.
        let is_wanted = weight > 0 && weight >= accepted.identity.unwrap_or(0);
        if is_wanted && best.is_none_or(|(_, other)| weight > other) {
            best = Some((coding, weight));
        }
    }
    best.map(|(coding, _)| coding)
}

/// What Accept-Encoding says of the codings that are known here.
#[derive(Default)]
struct Accepted {
    brotli: Option<Weight>,
    gzip: Option<Weight>,
    identity: Option<Weight>,
    others: Option<Weight>,
}

impl Accepted {
    fn of(head: &RequestHead<'_>) -> Self {
        let mut accepted = Self::default();
        for line in lines(head, "Accept-Encoding") {
            for element in line.split(|&byte| byte == b',') {
                accepted.note(element);
            }
        }
        accepted
    }

    fn note(&mut self, element: &[u8]) {
        let mut parts = element.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
        let name = parts.next().unwrap_or_default();
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        let field = match () {
            () if is("br") => &mut self.brotli,
            // RFC 9110, section 8.4.1.3.
            () if is("gzip") || is("x-gzip") => &mut self.gzip,
            () if is("identity") => &mut self.identity,
            () if is("*") => &mut self.others,
            () => return,
        };
        let weight = match (parts.next(), parts.next()) {
            (None, _) => Some(WEIGHT_MAX),
            (Some(parameter), None) => weight_of(parameter),
            _ => None,
        };
        // What is malformed is wanted least.
        *field = Some(weight.unwrap_or(0));
    }

    fn weight(&self, coding: Coding) -> Weight {
        let named = match coding {
            Coding::Brotli => self.brotli,
            Coding::Gzip => self.gzip,
        };
        named.or(self.others).unwrap_or(0)
    }
}

/// `q=0.5`: RFC 9110, section 12.4.2.
fn weight_of(parameter: &[u8]) -> Option<Weight> {
    let [b'q' | b'Q', b'=', value @ ..] = parameter else {
        return None;
    };
    let (whole, fraction) = match value {
        [whole @ (b'0' | b'1')] => (*whole, &b""[..]),
        [whole @ (b'0' | b'1'), b'.', fraction @ ..] => (*whole, fraction),
        _ => return None,
    };
    if fraction.len() > 3 || !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let places = [100, 10, 1];
    let thousandths = fraction
        .iter()
        .zip(places)
        .map(|(digit, place)| Weight::from(digit - b'0') * place)
        .sum::<Weight>();
    let weight = Weight::from(whole - b'0') * WEIGHT_MAX + thousandths;
    (weight <= WEIGHT_MAX).then_some(weight)
}

#[cfg(test)]
mod tests {
    use super::super::headers::test_head;
    use super::*;

    fn chosen(accept: &str) -> Option<&'static str> {
        let headers = format!("Accept-Encoding: {accept}");
        test_head("GET", &headers, |head| {
            choose(head, Coding::ALL.into_iter())
        })
        .map(Coding::name)
    }

    #[test]
    fn the_heaviest_wins_and_brotli_a_tie() {
        for (accept, expected) in [
            ("gzip, deflate, br, zstd", Some("br")),
            ("gzip", Some("gzip")),
            ("GZIP", Some("gzip")),
            ("x-gzip", Some("gzip")),
            ("br;q=0.5, gzip;q=0.8", Some("gzip")),
            ("br;q=0.5, gzip;q=0.500", Some("br")),
            ("br ; q=0.1,gzip; Q=0.2", Some("gzip")),
            ("*", Some("br")),
            ("br;q=0, *", Some("gzip")),
            ("gzip;q=0.001", Some("gzip")),
            ("deflate\nAccept-Encoding: gzip", Some("gzip")),
        ] {
            assert_eq!(chosen(accept), expected, "{accept}");
        }
    }

    #[test]
    fn what_is_not_wanted_is_not_sent() {
        for accept in [
            "",
            "identity",
            "deflate, zstd",
            "gzip;q=0",
            "br;q=0, gzip;q=0.0",
            "*;q=0",
            "identity, gzip;q=0.5",
            "identity;q=0.9, br;q=0.8",
            "gzip;q=2",
            "gzip;q=0.1234",
            "gzip;q=-1",
            "gzip;q=",
            "gzip;x=1",
            "gzip;q=1;q=1",
            "gzipped",
        ] {
            assert_eq!(chosen(accept), None, "{accept}");
        }
        assert_eq!(
            test_head("GET", "", |head| choose(head, Coding::ALL.into_iter())),
            None
        );
    }

    #[test]
    fn identity_is_refused_where_something_else_is_there() {
        assert_eq!(chosen("identity;q=0, gzip;q=0.1"), Some("gzip"));
        assert_eq!(chosen("*;q=0.1, identity;q=0.1"), Some("br"));
    }

    #[test]
    fn only_what_is_there_is_chosen() {
        test_head("GET", "Accept-Encoding: br;q=1, gzip;q=0.1", |head| {
            let only_gzip = [Coding::Gzip].into_iter();
            assert_eq!(choose(head, only_gzip), Some(Coding::Gzip));
            assert_eq!(choose(head, [].into_iter()), None);
        });
    }
}
