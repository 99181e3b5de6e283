//! What I/O threads go by: the applications, which requests they get, their folders, the access log.

use std::sync::Arc;

use super::resolve::Resolver;
use super::static_file::{Root, StaticFiles};
use crate::access_log::AccessLog;
use crate::app::{App, Pool};
use crate::config::Configuration;
use crate::options::TrustedHeader;
use crate::routes::Routes;

/// The same for all I/O threads.
pub struct Sites {
    pub routes: Routes,
    /// In the order of the configuration.
    pub list: Vec<Site>,
    pub io_thread_count: usize,
    /// In which trusted proxies speak.
    pub trusted_headers: Vec<TrustedHeader>,
    /// Each I/O thread writes by one of its own.
    pub access_log: Option<AccessLog>,
}

/// An application, and the folder that its files are served from.
pub struct Site {
    pub app: Arc<App>,
    root: Arc<Root>,
}

/// A site's folder as one I/O thread knows it: what it remembers of it.
pub struct Folder {
    pub resolver: Resolver,
    pub files: StaticFiles,
}

impl Site {
    /// The folder is opened anew, also for an application that runs already: its path may lead elsewhere by now.
    fn open(app: Arc<App>) -> Result<Self, String> {
        let config = &app.config;
        let follow = config.options.follow_symlinks;
        let root = Root::open(&config.project.root, follow, config.account.as_ref())
            .map_err(|error| format!("cannot open {}: {error}", config.project.root.display()))?;
        Ok(Self {
            app,
            root: Arc::new(root),
        })
    }
}

impl Sites {
    /// # Errors
    /// The folder of an application cannot be opened.
    pub fn open<'a>(
        configuration: &Configuration,
        apps: impl Iterator<Item = &'a Arc<App>>,
        io_thread_count: usize,
        access_log: Option<AccessLog>,
    ) -> Result<Self, String> {
        let list = apps.map(|app| Site::open(app.clone()));
        Ok(Self {
            routes: configuration.routes.clone(),
            list: list.collect::<Result<_, _>>()?,
            io_thread_count,
            trusted_headers: configuration.server.trusted_headers.clone(),
            access_log,
        })
    }

    /// For people.
    pub fn names(&self) -> String {
        let names = self.list.iter().map(|site| &*site.app.config.project.name);
        names.collect::<Vec<_>>().join(", ")
    }

    pub fn pools(&self) -> impl Iterator<Item = &Arc<Pool>> {
        self.list.iter().flat_map(|site| site.app.pools())
    }

    /// For an I/O thread, one for each site.
    pub fn folders(&self) -> Vec<Folder> {
        // Together they may hold a part of the descriptors that the process may have.
        let caches = self.io_thread_count * self.list.len();
        let folder = |site: &Site| {
            let config = &site.app.config;
            let options = &config.options;
            let has_worker = !config.workers.is_empty();
            let max_age_s = options.static_max_age_s;
            Folder {
                resolver: Resolver::new(&config.project, has_worker, options.path_cache_ms),
                files: StaticFiles::new(
                    site.root.clone(),
                    options.path_cache_ms,
                    max_age_s,
                    caches,
                ),
            }
        };
        self.list.iter().map(folder).collect()
    }
}
