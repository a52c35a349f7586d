"""The sites of a gateway, joined to what it has published, for its servers to dispatch to."""

from collections.abc import Callable

from actors.project.site import ContentReader, SiteDirectory
from gateway.net.applications import SitesAt
from gateway.projects.feature import ProjectsFeature
from gateway.projects.opening import host_of
from gateway.projects.settings import ProjectsSettings
from gateway.projects.site_contents import SiteContents
from gateway.projects.site_host_rules import SiteHosts
from gateway.projects.site_routes import SiteRoutes


def opened_sites(
    directory: SiteDirectory,
    reader: ContentReader,
    api: ProjectsFeature,
    settings: ProjectsSettings,
    base: Callable[[], str],
) -> SitesAt:
    contents = SiteContents(reader)
    api.starts.append(contents.start)
    return SiteRoutes(directory, contents, SiteHosts(settings.site_suffix, host_of(base()))).at
