//! Which application a request is for: by host and path, the first route that fits.

/// A route's host: `example.org`, or `*.example.org` for all names below it, however deep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPattern {
    /// Lower case, without the star; with its dot, if there was one.
    name: String,
    below: bool,
}

impl HostPattern {
    pub fn parse(text: &str) -> Result<Self, String> {
        let (below, rest) = match text.strip_prefix('*') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let labels = match below {
            true => rest.strip_prefix('.').unwrap_or_default(),
            false => rest,
        };
        let is_address = labels.starts_with('[') && labels.ends_with(']') && !below;
        let is_label = |label: &str| {
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
            !label.is_empty() && label.bytes().all(fits)
        };
        if !is_address && !labels.split('.').all(is_label) {
            return Err("expected a host without a port, or *.example for all names below".into());
        }
        Ok(Self {
            name: rest.to_ascii_lowercase(),
            below,
        })
    }

    /// `host` as the client gave it, with or without a port.
    fn fits(&self, host: &str) -> bool {
        let host = without_port(host);
        let host = host.strip_suffix('.').unwrap_or(host);
        let Some(start) = host.len().checked_sub(self.name.len()) else {
            return false;
        };
        // Compared as bytes: the cut might lie within a character.
        (start == 0) != self.below
            && host.as_bytes()[start..].eq_ignore_ascii_case(self.name.as_bytes())
    }

    /// Whether all hosts that fit the other fit this one.
    fn covers(&self, other: &Self) -> bool {
        match (self.below, other.below) {
            (false, true) => false,
            (false, false) => self.name == other.name,
            (true, true) => other.name.ends_with(&self.name),
            (true, false) => self.fits(&other.name),
        }
    }
}

/// RFC 9110, section 7.2: the port, if there is one, follows the last colon outside of brackets.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => name,
        _ => host,
    }
}

/// A route's path: `/exactly`, or `/beginning*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern {
    path: String,
    /// More may follow.
    open: bool,
}

impl PathPattern {
    pub fn parse(text: &str) -> Result<Self, String> {
        let (path, open) = match text.strip_suffix('*') {
            Some(path) => (path, true),
            None => (text, false),
        };
        if !path.starts_with('/') || path.contains('*') {
            return Err("expected /exactly or /beginning*".into());
        }
        Ok(Self {
            path: path.into(),
            open,
        })
    }

    fn fits(&self, path: &[u8]) -> bool {
        match self.open {
            true => path.starts_with(self.path.as_bytes()),
            false => path == self.path.as_bytes(),
        }
    }

    fn covers(&self, other: &Self) -> bool {
        match self.open {
            true => other.path.starts_with(&self.path),
            false => self == other,
        }
    }
}

/// One route. What is absent fits everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    pub host: Option<HostPattern>,
    pub path: Option<PathPattern>,
    /// The application, by its place in the configuration.
    pub app: usize,
}

impl Route {
    fn fits(&self, host: Option<&str>, path: &[u8]) -> bool {
        let host_fits = |pattern: &HostPattern| host.is_some_and(|host| pattern.fits(host));
        self.host.as_ref().is_none_or(host_fits)
            && self.path.as_ref().is_none_or(|pattern| pattern.fits(path))
    }

    /// Whether every request that fits the other fits this one.
    pub fn covers(&self, other: &Self) -> bool {
        let host = match (&self.host, &other.host) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(this), Some(other)) => this.covers(other),
        };
        let path = match (&self.path, &other.path) {
            (None, _) => true,
            (Some(this), None) => this.open && this.path == "/",
            (Some(this), Some(other)) => this.covers(other),
        };
        host && path
    }
}

/// All routes, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Routes {
    /// There is one application, and it gets everything.
    Only,
    List(Vec<Route>),
}

impl Routes {
    /// The application for a request, by its place in the configuration. The path is decoded and without dot segments,
    /// as the application's files are looked up: nothing gets past a route by spelling.
    #[inline]
    pub fn app_for(&self, host: Option<&str>, path: &[u8]) -> Option<usize> {
        match self {
            Routes::Only => Some(0),
            Routes::List(routes) => routes
                .iter()
                .find(|route| route.fits(host, path))
                .map(|route| route.app),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(host: &str, path: &str, app: usize) -> Route {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Route {
            host: some(host).map(|host| HostPattern::parse(&host).expect("a host")),
            path: some(path).map(|path| PathPattern::parse(&path).expect("a path")),
            app,
        }
    }

    #[test]
    fn the_first_route_that_fits_counts() {
        let routes = Routes::List(vec![
            route("blog.example", "/api/*", 1),
            route("blog.example", "", 2),
            route("*.example", "", 3),
            route("[::1]", "", 4),
            route("", "/health", 5),
        ]);
        let cases = [
            (Some("blog.example"), "/api/x", Some(1)),
            (Some("BLOG.Example:8080"), "/api/", Some(1)),
            (Some("blog.example."), "/api", Some(2)),
            (Some("shop.example"), "/", Some(3)),
            (Some("a.b.example:80"), "/", Some(3)),
            (Some("blog.example.org"), "/health", Some(5)),
            (Some("example"), "/", None),
            (Some(".example"), "/", None),
            (Some("\u{e9}xample"), "/", None),
            (Some("[::1]:80"), "/", Some(4)),
            (Some("[::1]"), "/", Some(4)),
            (None, "/health", Some(5)),
            (None, "/health/", None),
        ];
        for (host, path, expected) in cases {
            assert_eq!(
                routes.app_for(host, path.as_bytes()),
                expected,
                "{host:?} {path}"
            );
        }
        assert_eq!(Routes::Only.app_for(None, b"/"), Some(0));
    }

    #[test]
    fn what_an_earlier_route_leaves_nothing_for() {
        let covered = [
            (("", ""), ("a.example", "/x")),
            (("a.example", ""), ("A.EXAMPLE", "/x")),
            (("*.example", ""), ("a.example", "")),
            (("*.example", ""), ("*.b.example", "")),
            (("", "/a*"), ("a.example", "/ab/*")),
            (("", "/*"), ("", "")),
            (("", "/a"), ("", "/a")),
        ];
        for (first, second) in covered {
            assert!(
                route(first.0, first.1, 0).covers(&route(second.0, second.1, 0)),
                "{first:?} {second:?}"
            );
        }
        let open = [
            (("a.example", ""), ("", "")),
            (("a.example", ""), ("*.example", "")),
            (("*.b.example", ""), ("*.example", "")),
            (("*.example", ""), ("example", "")),
            (("", "/ab*"), ("", "/a*")),
            (("", "/a"), ("", "/a*")),
            (("", "/a"), ("", "")),
            (("a.example", "/a*"), ("b.example", "/a")),
        ];
        for (first, second) in open {
            assert!(
                !route(first.0, first.1, 0).covers(&route(second.0, second.1, 0)),
                "{first:?} {second:?}"
            );
        }
    }

    #[test]
    fn patterns_that_cannot_fit_are_refused() {
        for bad in [
            "",
            "*",
            "*.",
            "*example",
            "a.example:80",
            "a..b",
            "a/b",
            ".a",
            "*.*.a",
            "[::1",
        ] {
            assert!(HostPattern::parse(bad).is_err(), "{bad}");
        }
        for bad in ["", "*", "a", "api/*", "/a*/b", "/a**"] {
            assert!(PathPattern::parse(bad).is_err(), "{bad}");
        }
    }
}
