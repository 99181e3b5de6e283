//! Whether opcache is at work, as a script of the journey's sees it.

use crate::browser::Browser;
use crate::site::Site;

const NAME: &str = "opcache-of-the-journey.php";
const SCRIPT: &str = "<?php $o = opcache_get_status(); $s = $o['opcache_statistics'];
echo $s['num_cached_scripts'], ' ', $s['hits'], ' ', count($o['preload_statistics']['scripts'] ?? []);";

#[derive(Debug)]
pub struct Opcache {
    pub scripts: u64,
    pub hits: u64,
    pub preloaded: u64,
}

/// Puts the script into the site.
pub fn watch(site: &Site) {
    site.write(NAME, SCRIPT);
}

#[track_caller]
pub fn look(browser: &mut Browser) -> Opcache {
    let text = browser.get(&format!("/{NAME}")).expect(200).text();
    let numbers: Vec<u64> = text.split(' ').filter_map(|n| n.parse().ok()).collect();
    match numbers[..] {
        [scripts, hits, preloaded] => Opcache {
            scripts,
            hits,
            preloaded,
        },
        _ => panic!("no status of opcache: {text}"),
    }
}
