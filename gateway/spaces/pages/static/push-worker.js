/** The service worker of one room: shows what is pushed to it, and leads back to it. Its scope names the room. */

const path = `/s/${self.registration.scope.split("/").at(-2)}`;

self.addEventListener("push", (event) => {
  const { title, body } = event.data.json();
  event.waitUntil(self.registration.showNotification(title, { body }));
});

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(showRoom());
});

async function showRoom() {
  const pages = await self.clients.matchAll({ type: "window", includeUncontrolled: true });
  const page = pages.find(({ url }) => new URL(url).pathname === path);
  return page === undefined ? self.clients.openWindow(path) : page.focus();
}
